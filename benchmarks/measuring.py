"""What `eta="auto"` costs: the share of a run's time that goes into measuring L, and of its calls.

python benchmarks/measuring.py [--quick] [--out FOLDER]

Each method runs 1,000 steps on hyper-cleaning of MNIST, from the start, with `eta="auto"` and with a number, in turn.
The share is the median of what the first took longer, as a part of its time, over 7 to 41 turns: as many as take about
five seconds.
"""

import argparse
import json
from pathlib import Path
from statistics import median

from speed import mnist_problem, turns

import bilax
from bilax.storage.environment import environment

METHODS = {
    "MRBO, batch 64": lambda eta: bilax.MRBO(Q=3, eta=eta, S=64),
    "VRBO, batch 64": lambda eta: bilax.VRBO(Q=3, eta=eta, S1=1000, S2=64, m=5),
    "stocBiO, batch 64": lambda eta: bilax.StocBiO(Q=3, eta=eta, S=64, D=10),
    "SUSTAIN, single samples": lambda eta: bilax.SUSTAIN(Q=3, eta=eta, S=1),
    "TTSA, single samples": lambda eta: bilax.TTSA(Q=3, eta=eta, S=1),
    "SOBA, batch 64": lambda eta: bilax.SOBA(rho_v=eta, S=64),
}


def run(problem, algorithm, steps):
    def measure():
        return bilax.solve(problem, algorithm, steps=steps, every=steps, metrics=lambda x, y: {})

    first = measure()
    return first, lambda: measure().seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 steps, one repetition: for errors, not for figures")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for measuring.json")
    options = parser.parse_args()
    problem, source = mnist_problem()
    steps, table = 100 if options.quick else 1_000, {}
    for name, make in METHODS.items():
        auto, timed = run(problem, make("auto"), steps)
        fixed, plain = run(problem, make(0.001), steps)
        repetitions = 1 if options.quick else min(max(7, round(5 / (timed() + plain()))), 41)
        times = turns({"auto": timed, "fixed": plain}, repetitions)
        table[name] = {
            "auto, ms per step": 1e3 * median(t["auto"] for t in times) / steps,
            "fixed, ms per step": 1e3 * median(t["fixed"] for t in times) / steps,
            "share of the time": median(1 - t["fixed"] / t["auto"] for t in times),
            "share of the products": 1 - fixed.counts.HV / auto.counts.HV,
        }
        print(name, {key: round(value, 3) for key, value in table[name].items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "steps": steps, "data": source, "environment": environment()}
    (options.out / "measuring.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
