"""The paper's claims about speed, with the loss drawn against other things than the seconds of our own clock.

python benchmarks/readings.py [--quick] [--out FOLDER]

Hyper-cleaning of MNIST, 10 % wrong labels, the paper's settings, two seeds, for the four methods whose steps
benchmarks/speed.py times in eager PyTorch as well; SUSTAIN also with the inner step of the others. Each run goes on for
what would take the interpreted script 300 seconds. A reading is what the loss is drawn against: outer iterations,
samples, or iterations times the time of an interpreted step. None of them depends on what else the machine does.
"""

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import bilax
from bilax.experiments.tasks import Task
from bilax.paper.figures import MNIST
from bilax.storage.environment import environment

MEASURED = Path(__file__).parent.parent / "docs" / "measured" / "speed.json"
HORIZON = 300.0  # seconds of the interpreted script
SEEDS, ROWS = 2, 100
METHODS = ("VRBO", "stocBiO", "MRBO", "SUSTAIN", "SUSTAIN, inner step 0.1")
READINGS = ("iterations", "samples", "interpreted seconds")


def setting(name):
    if name.endswith("inner step 0.1"):
        outer, _ = MNIST.steps["SUSTAIN"]
        return MNIST.recipes["SUSTAIN"](outer, 0.1, 0.5)
    return MNIST.algorithm(name, "paper")


def curve(problem, algorithm, eager, seed, quick):
    """Return the loss on the true labels against everything that it could be drawn against."""
    steps = 20 if quick else round(HORIZON / eager)
    # The beginning closely, then the whole: what is measured does not change the iterates.
    rows = [row for length in (max(1, steps // 50), steps) for row in _rows(problem, algorithm, length, seed)]
    found = {name: [] for name in ("k", "samples", "train_loss")}
    for row in rows:
        if not found["k"] or row["k"] > found["k"][-1]:
            for name, values in found.items():
                values.append(float(row[name]))
    found = {name: np.array(values) for name, values in found.items()}
    return {
        "iterations": found["k"],
        "samples": found["samples"],
        "interpreted seconds": eager * found["k"],
        "loss": found["train_loss"],
    }


def _rows(problem, algorithm, steps, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bilax.Doubtful)  # eta = 0.5 is the paper's
        result = bilax.solve(problem, algorithm, steps=steps, every=max(1, steps // ROWS), seed=seed, progress=False)
    if result.status != "done":
        raise SystemExit(f"{type(algorithm).__name__}, seed {seed}: {result.message}")
    return result.history


def to_a_tenth(run, reading):
    """Return where the loss is first a tenth of what it was; infinity if nowhere."""
    hits = np.flatnonzero(run["loss"] <= 0.1 * run["loss"][0])
    return float(run[reading][hits[0]]) if hits.size else float("inf")


def at(run, reading, place):
    """Return the last loss that was measured up to a place."""
    return float(run["loss"][np.searchsorted(run[reading], place, side="right") - 1])


def summary(runs):
    """Return, of every reading, the way to a tenth and the loss where the shortest run of all ends, of every seed."""
    table = {}
    for reading in READINGS:
        end = min(float(run[reading][-1]) for some in runs.values() for run in some)
        table[reading] = {
            "end": end,
            "methods": {
                name: {
                    "to a tenth": [to_a_tenth(run, reading) for run in some],
                    "at the end": [at(run, reading, end) for run in some],
                    "after its own last step": [float(run["loss"][-1]) for run in some],
                }
                for name, some in runs.items()
            },
        }
    return table


def thinned(run, points=80):
    """Return some points of a curve, at equal ratios of iterations."""
    chosen = np.unique(np.geomspace(1, len(run["loss"]), points).astype(int)) - 1
    return {name: [float(f"{value:.5g}") for value in run[name][chosen]] for name in (*READINGS, "loss")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 steps, one seed, digits in place of MNIST")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for readings.json")
    options = parser.parse_args()
    stored = json.loads(MEASURED.read_text())
    eager = {name: stored["table"][f"{name.split(',')[0]}, MNIST"]["eager PyTorch, ms"] / 1e3 for name in METHODS}
    task = Task("digits" if options.quick else "mnist", 0.1)
    runs = {name: [] for name in METHODS}
    for seed in range(1 if options.quick else SEEDS):
        problem = task.load(seed).problem
        for name in METHODS:
            algorithm = setting(name)
            if options.quick:
                sizes = {size: 50 for size in ("S", "S1", "S2") if hasattr(algorithm, size)}
                algorithm = replace(algorithm, **sizes)
            runs[name].append(curve(problem, algorithm, eager[name], seed, options.quick))
            print(name, seed, runs[name][-1]["loss"][-1], flush=True)
    facts = {
        "readings": summary(runs),
        "curves": {name: thinned(some[0]) for name, some in runs.items()},
        "eager": {name: 1e3 * seconds for name, seconds in eager.items()},
        "eager commit": stored["environment"]["commit"],
        "environment": environment(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "readings.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
