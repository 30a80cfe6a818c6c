"""Where the time of a step goes, operation by operation.

python benchmarks/profiling.py ["mrbo[gamma=100,S=1000,eta=0.05]"] [--steps 50] [--rows 20]

On MNIST hyper-cleaning. Three lines of this are all that is needed for a problem of your own: `jax.profiler.trace`
around a second call of `bilax.solve`, and the sum of the durations in the trace that it writes.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="?", default="mrbo[gamma=100,S=1000,eta=0.05]")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rows", type=int, default=25)
    options = parser.parse_args()
    problem, source = mnist_problem()
    algorithm = settings.parse(options.setting)

    def run():
        return bilax.solve(problem, algorithm, steps=options.steps, every=options.steps, metrics=lambda x, y: {})

    run()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            result = run()
        spent, calls = durations(folder)
    print(
        f"{options.setting} on {source}: {1e3 * result.seconds / options.steps:.3f} ms per step (with the profiler on)"
    )
    for name, micro in spent.most_common(options.rows):
        print(f"{micro / options.steps:>9.1f} us per step {calls[name] / options.steps:>6.1f} calls  {name}")


if __name__ == "__main__":
    main()
