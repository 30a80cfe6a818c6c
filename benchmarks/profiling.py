"""Where the time of a step goes, operation by operation.

python benchmarks/profiling.py [--out FOLDER]
python benchmarks/profiling.py "mrbo[gamma=100,S=1000,eta=0.05]" [--steps 50] [--rows 20] [--sampler blocks]

On MNIST hyper-cleaning. The first shows for short steps where their time goes, by kind of operation; the second shows
each operation of one method. For a problem of your own, three lines are enough: `jax.profiler.trace` around a second
call of `bilax.solve`, and the sum of the durations in the trace that it writes.
"""

import argparse
import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path

import jax
from speed import mnist_problem

import bilax
from bilax import settings
from bilax.storage.environment import environment


def durations(folder):
    """Return total microseconds and calls per operation of the compiled program, from a trace."""
    path = next(Path(folder).rglob("*.trace.json.gz"))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spent, calls = Counter(), Counter()
    for event in events:
        if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
            spent[event["args"]["hlo_op"]] += event["dur"]
            calls[event["args"]["hlo_op"]] += 1
    return spent, calls


def profile(problem, algorithm, steps, sampler="iid"):
    """Return the seconds of a run without the profiler, and what `durations` returns of one with it."""

    def run():
        return bilax.solve(
            problem, algorithm, steps=steps, every=steps, metrics=lambda x, y: {}, sampler=sampler
        ).seconds

    run()
    seconds = min(run() for _ in range(5))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        return seconds, *durations(folder)


def kind(operation):
    """Return what an operation of the compiled program does, from its name; None for what holds others."""
    if operation.startswith(("while", "cond", "call")):
        return None
    if operation.startswith(("ynn", "dot")):
        return "products"
    return "gathers and slices" if "gather" in operation or "dynamic" in operation else "all else"


def shares(problem):
    """Return, for short steps, where the time of a step goes. Operations may run side by side, and the profiler makes
    each one longer, so the parts need not sum up to the time of a step."""
    table, steps = {}, 1000
    for name, algorithm in SHORT.items():
        for sampler in ("iid", "blocks"):
            seconds, spent, calls = profile(problem, algorithm, steps, sampler)
            row = {"us per step": 1e6 * seconds / steps, "products": 0.0, "gathers and slices": 0.0, "all else": 0.0}
            for operation, micro in spent.items():
                if (what := kind(operation)) is not None:
                    row[what] += micro / steps
            row["operations"] = sum(count for operation, count in calls.items() if kind(operation)) / steps
            table[f"{name}, {sampler}"] = row
            print(f"{name}, {sampler}", {key: round(value, 1) for key, value in row.items()}, flush=True)
    return table


SHORT = {
    "MRBO 64, Q 10": bilax.MRBO(Q=10, eta=0.05, S=64),
    "stocBiO 64, D 10, Q 10": bilax.StocBiO(D=10, Q=10, eta=0.05, S=64),
    "TTSA 64, Q 10": bilax.TTSA(Q=10, eta=0.05, S=64),
    "BSA 64, T 10, Q 10": bilax.BSA(T=10, Q=10, eta=0.05, S=64),
    "SOBA 64": bilax.SOBA(rho_v=0.05, S=64),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="?", help="a method and its hyper-parameters; without it, the table")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--sampler", default="iid")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for profiling.json")
    options = parser.parse_args()
    problem, source = mnist_problem()
    if options.setting is None:
        facts = {"table": shares(problem), "data": source, "environment": environment()}
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "profiling.json").write_text(json.dumps(facts, indent=2) + "\n")
        return
    seconds, spent, calls = profile(problem, settings.parse(options.setting), options.steps, options.sampler)
    print(f"{options.setting} on {source}: {1e3 * seconds / options.steps:.3f} ms per step without the profiler")
    for name, micro in spent.most_common(options.rows):
        print(f"{micro / options.steps:>9.1f} us per step {calls[name] / options.steps:>6.1f} calls  {name}")


if __name__ == "__main__":
    main()
