"""What blocks cost in statistics: the variance of a gradient on a block, next to that on independent samples.

python benchmarks/blocks.py [--quick] [--out FOLDER]

On hyper-cleaning of MNIST (digits with --quick), at the start and after some steps. Of one shuffle, the variance over
all blocks is a number; over shuffles it varies. Both are divided by the variance on independent samples, whose
expectation for a draw without replacement is 1 - (S - 1) / (n - 1).
"""

import argparse
import json
from pathlib import Path
from statistics import mean

import jax
import jax.numpy as jnp
import numpy as np
from speed import mnist_problem

import bilax
from bilax.numerics.tree import axpy, vdot
from bilax.sampling.samplers import Blocks, block, iid
from bilax.storage.environment import environment


def variance(grad, whole, batches):
    """Return the mean of |gradient on a batch - gradient on all data|^2 over some batches."""
    distance = jax.jit(lambda of: (lambda off: vdot(off, off))(axpy(-1, whole, grad(of))))
    return mean(float(distance(of)) for of in batches)


def ratios(problem, x, y, S, draws, shuffles):
    oracle, n = bilax.make_oracle(problem), problem.inner_size
    whole = jax.jit(lambda: oracle.mean_G(lambda batch: oracle.grad_G(x, y, batch)))()

    def drawn(key):
        return oracle.grad_G(x, y, iid(problem.inner_data, key, S))

    independent = variance(drawn, whole, jax.random.split(jax.random.key(0), draws))
    of_shuffles = []
    for seed in range(shuffles):
        data, _ = Blocks(seed=seed).arrange(problem.inner_data)
        starts = np.linspace(0, n, draws, endpoint=False).astype(np.uint32)

        def on_block(start, data=data):
            return oracle.grad_G(x, y, block(data, start, S))

        of_shuffles.append(variance(on_block, whole, map(jnp.asarray, starts)) / independent)
    return {
        "expected": 1 - (S - 1) / (n - 1),
        "mean": mean(of_shuffles),
        "least": min(of_shuffles),
        "most": max(of_shuffles),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits, few draws")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for blocks.json")
    options = parser.parse_args()
    if options.quick:
        from bilax.datasets import digits
        from bilax.problems import hyper_cleaning

        problem, source, draws, shuffles = hyper_cleaning(digits(0.3)), "digits", 50, 2
    else:
        (problem, source), draws, shuffles = mnist_problem(), 2000, 5
    trained = bilax.solve(problem, bilax.MRBO(gamma=100.0, lam=0.1), steps=50 if options.quick else 1000)
    table = {}
    for where, (x, y) in {"at the start": (problem.x0, problem.y0), "later": (trained.x, trained.y)}.items():
        for S in (64, 500):
            table[f"{where}, S = {S}"] = found = ratios(problem, x, y, S, draws, shuffles)
            print(f"{source}, {where}, S = {S}:", {name: round(value, 3) for name, value in found.items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "data": source, "environment": environment()}
    (options.out / "blocks.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
