"""How the time and the memory of a step grow: against samples, features, classes, batch, Q and inner steps.

python benchmarks/growth.py [--quick] [--out FOLDER]

Hyper-cleaning of random images. One quantity grows, the others stay; the exponent is the slope in a doubly logarithmic
plot over the larger half of the values. A step of MRBO keeps three vectors with a number per sample, so its time must
grow with n in the end: beside it stands the time of the updates of these vectors alone.
"""

import argparse
import json
from pathlib import Path

import bare
import jax
import numpy as np
from speed import ours, random_cleaning, turns

import bilax
from bilax.storage.environment import environment

BASE = dict(n=20_000, features=100, classes=10, S=100, Q=3, D=10)
GROWING = {
    "n": (10_000, 31_600, 100_000, 316_000, 1_000_000),
    "features": (50, 100, 200, 400, 800, 1600, 3200),
    "classes": (4, 8, 16, 32, 64, 128),
    "S": (64, 128, 256, 512, 1024, 2048, 4096),
    "Q": (2, 4, 8, 16, 32, 64),
    "D": (8, 16, 32, 64, 128, 256),
}
NAMES = {"n": "samples n", "S": "batch S", "D": "inner steps (stocBiO)"}


def method(values):
    if values["D"] != BASE["D"]:
        return bilax.StocBiO(alpha=0.01, beta=1.0, D=values["D"], Q=values["Q"], eta=0.001, S=values["S"])
    return bilax.MRBO(gamma=1.0, lam=0.01, Q=values["Q"], eta=0.001, S=values["S"])


def bytes_of_a_step(problem, algorithm):
    """Return what the compiled program allocates besides its arguments and results."""

    def run(outer, inner, x0, y0):
        copy = bilax.Problem(problem.outer_loss, problem.inner_loss, outer, inner)
        return bilax.iterate(copy, algorithm, x0, y0, steps=2)[0]

    parts = (problem.outer_data, problem.inner_data, problem.x0, problem.y0)
    analysis = jax.jit(run).lower(*parts).compile().memory_analysis()
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes


def slope(values, results):
    half = len(values) // 2
    return float(np.polyfit(np.log(values[half:]), np.log(results[half:]), 1)[0])


def grow(name, quick):
    values = GROWING[name][:: 2 if quick else 1]
    rows = []
    for value in values:
        setting = {**BASE, name: value}
        problem = random_cleaning(setting["n"], 5_000, setting["features"], setting["classes"])
        algorithm = method(setting if name != "D" else {**setting, "D": value})
        measures = {"step": ours(problem, algorithm, 20)}
        if name == "n":
            measures["vectors"] = bare.vectors(value)
        times = turns(measures, 3 if quick else 5)
        row = {key: min(t[key] for t in times) for key in times[0]}
        rows.append({"value": value, **row, "bytes": bytes_of_a_step(problem, algorithm)})
        print(name, rows[-1], flush=True)
    out = {
        "name": NAMES.get(name, name),
        "rows": rows,
        "time exponent": slope(values, [r["step"] for r in rows]),
        "memory exponent": slope(values, [r["bytes"] for r in rows]),
    }
    print(f"{out['name']}: time ~ {out['time exponent']:.2f}, memory ~ {out['memory exponent']:.2f}", flush=True)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every other value, few repetitions")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for growth.json")
    options = parser.parse_args()
    found = {name: grow(name, options.quick) for name in GROWING}
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"growth": found, "base": BASE, "environment": environment()}
    (options.out / "growth.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
