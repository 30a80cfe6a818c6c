"""What evaluating both points of a recursion together brings: MRBO on MNIST hyper-cleaning, float32, batch 1000, Q = 3.

BILAX_DATA_DIR=... python benchmarks/pairing.py [--quick]
"""

import argparse
import json
import time
from statistics import median
from unittest import mock

import jax

import bilax
from bilax.datasets import mnist
from bilax.problems import hyper_cleaning


def one_after_the_other(fn, new, old):
    return fn(*new), fn(*old)


def program(problem, steps):
    """A jitted scan of MRBO, and the seconds of its first call, compilation included."""
    algorithm = bilax.MRBO(gamma=100.0, lam=0.1, Q=3, eta=0.05, S=1000)

    @jax.jit
    def run(outer_data, inner_data, seed):
        copy = bilax.Problem(problem.outer_loss, problem.inner_loss, outer_data, inner_data)
        return bilax.iterate(copy, algorithm, problem.x0, problem.y0, steps=steps, seed=seed)[0].x

    def call(seed):
        tic = time.perf_counter()
        jax.block_until_ready(run(problem.outer_data, problem.inner_data, seed))
        return time.perf_counter() - tic

    return call, call(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, only to see that it runs")
    quick = parser.parse_args().quick
    steps, repeats = (10, 2) if quick else (100, 9)
    problem = hyper_cleaning(mnist(0.1))
    together, first = program(problem, steps)
    with mock.patch("bilax.algorithms.mrbo.both", one_after_the_other):
        apart, _ = program(problem, steps)
    times = [(together(seed), apart(seed)) for seed in range(1, repeats + 1)]
    a, b = (1e3 * median(column) / steps for column in zip(*times, strict=True))
    print(
        json.dumps(
            {
                "steps": steps,
                "first call, seconds": round(first, 2),
                "together, ms per step": round(a, 2),
                "one after the other, ms per step": round(b, 2),
                "ratio": round(median(t / s for t, s in times), 3),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
