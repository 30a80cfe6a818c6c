"""A model of the time of a step on many devices, fitted to 1, 2, 4 and 8 parts of a CPU, and what it predicts.

python benchmarks/scale_model.py [--quick] [--out FOLDER]

A step of P devices takes

    t = flops / (P R) + bytes / (P M) + collectives * latency + 2 (P - 1) / P * reduced / link

The devices share the floating-point work of a step and the bytes of its batches; R and M are the rates of one device.
Every derivative in y ends in one reduction among all devices, at most, of as many bytes as y has (a weight per sample
stays where its sample is; what does not wait for each other may be joined). All of this follows from the calls and
draws that a method declares. On one machine all devices share the same cores, so that the first two terms do not fall
with P, and each device adds its own share of the others; R, M, latency and link are fitted to the times of several
methods and batch sizes (least squares of relative errors, nothing below 0). For other machines the same formula takes
rates from data sheets: a prediction, not a measurement.
"""

import argparse
import json
from pathlib import Path

from devices import COUNTS, cleaning, compiled, seconds  # first: it cuts the CPU into devices

import numpy as np  # isort: skip
from scipy.optimize import nnls
from streaming import C, D

import bilax
from bilax.hyperparameters import names_of
from bilax.storage.environment import environment

N = 19_200
METHODS = {
    "SOBA": lambda S: bilax.SOBA(S=S, rho_v=0.01),
    "stocBiO, D = 10": lambda S: bilax.StocBiO(S=S, D=10, Q=10, eta=0.01),
    "MRBO": lambda S: bilax.MRBO(S=S, Q=3, eta=0.01),
}
SIZES = (960, 3840)
EACH = 960  # samples of a batch on every device, where it is predicted

# Rates per device from data sheets: float32 work of matrix products that are bound by memory, bytes per second of the
# memory, seconds for an operation among all, bytes per second between neighbours.
MACHINES = {
    "8 GPUs of one machine (A100, NVLink)": {"P": 8, "R": 19.5e12, "M": 1.5e12, "latency": 20e-6, "link": 300e9},
    "64 machines of 8 GPUs (25 GB/s each)": {"P": 512, "R": 19.5e12, "M": 1.5e12, "latency": 100e-6, "link": 25e9},
}


def step_of(algorithm, S):
    """Return what a step is made of: of linear classifiers, from the calls and draws that the method declares."""
    calls, draws, y = algorithm.cost(1), algorithm.draws(), 4.0 * D * C
    derivatives = (calls.F + calls.G + calls.HV) / S
    products = 2 * calls.F + 2 * calls.G + 3 * calls.JV + 4 * calls.HV  # of a sample with a matrix like y
    return {
        "flops": 2.0 * D * C * products,
        "bytes": 4.0 * (D + 2) * (draws.F + draws.G),
        "collectives": derivatives,
        "reduced": y * derivatives,
    }


def measured(name, S, count, steps):
    algorithm = METHODS[name](S)
    _, run = compiled(cleaning(N), algorithm, count)
    made_of = step_of(algorithm, S) | ({} if count > 1 else {"collectives": 0.0, "reduced": 0.0})
    return {"method": name, "S": S, "devices": count, **made_of, "seconds": seconds(run, steps)}


def terms(row):
    """Return what the four constants are multiplied with, on devices that share one machine."""
    P = row["devices"]
    return row["flops"], row["bytes"], P * row["collectives"], 2 * (P - 1) * row["reduced"]


def fitted(rows):
    A, t = np.array([terms(row) for row in rows]), np.array([row["seconds"] for row in rows])
    scale = A.max(axis=0)
    constants = nnls(A / scale / t[:, None], np.ones(len(t)))[0] / scale
    return constants, A @ constants / t - 1


def predicted(method, machine):
    """Return the seconds of a step on another machine, by what they go into."""
    P = machine["P"]
    row = step_of(METHODS[method](EACH * P), EACH * P)
    return {
        "products": row["flops"] / (P * machine["R"]),
        "reading batches": row["bytes"] / (P * machine["M"]),
        "latency": row["collectives"] * machine["latency"],
        "moving": 2 * (P - 1) / P * row["reduced"] / machine["link"],
    }


def reductions():
    """Return how often the devices reduce an array like y, at most, in a step of every method on a mesh."""
    found = {}
    for name, make in bilax.ALGORITHMS.items():
        sizes = names_of("batch_size", make())
        algorithm = make(**dict.fromkeys(sizes, EACH))
        if "HINV" in algorithm.about.calls or hasattr(algorithm, "passes"):  # no mesh, or passes over all data besides
            continue
        calls = algorithm.cost(1)
        found[name] = (calls.F + calls.G + calls.HV) / EACH
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one method, two devices, few steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for scale_model.json")
    options = parser.parse_args()
    names, counts, steps = (["SOBA"], COUNTS[:2], 2) if options.quick else (list(METHODS), COUNTS, 10)
    rows = []
    for name in names:
        for S in SIZES[: 1 if options.quick else None]:
            for count in counts:
                rows.append(measured(name, S, count, steps))
                print(rows[-1], flush=True)
    constants, errors = fitted(rows)
    for row, error in zip(rows, errors, strict=True):
        row["error"] = float(error)
    predictions = [
        {"machine": name, "method": method, "S": EACH * machine["P"], "parts": predicted(method, machine)}
        for name, machine in MACHINES.items()
        for method in METHODS
    ]
    facts = {
        "rows": rows,
        "constants": dict(zip(("flops", "bytes", "latency", "link"), constants.tolist(), strict=True)),
        "predictions": predictions,
        "reductions": reductions(),
        "environment": environment(),
    }
    print(f"constants {constants}, errors from {errors.min():.2f} to {errors.max():.2f}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scale_model.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
