"""A sweep as one vmapped program against its members one after the other, compilation included.

python benchmarks/sweeps.py [--quick] [--out FOLDER]

A 4 x 4 grid of step sizes, and 8 seeds, of MRBO on random images of the shapes of MNIST. The members share one
compiled program too, because step sizes and seeds are traced.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from speed import random_cleaning

import bilax
from bilax.environment import environment

CASES = {  # batch, steps, eta
    "batch 16": (16, 2000, 0.001),
    "batch 64": (64, 1000, 0.001),
    "batch 64, eta=auto": (64, 1000, "auto"),
    "batch 1000": (1000, 150, 0.001),
}


def sweep(problem, S, steps, eta, over):
    compiled = 0

    def one(gamma, lam, seed, outer, inner):
        nonlocal compiled
        compiled += 1
        copy = bilax.Problem(problem.outer_loss, problem.inner_loss, outer, inner)
        algorithm = bilax.MRBO(gamma=gamma, lam=lam, Q=3, eta=eta, S=S)
        return bilax.iterate(copy, algorithm, problem.x0, problem.y0, steps=steps, seed=seed)[0].y

    if over == "grid":
        gamma, lam = (a.ravel() for a in jnp.meshgrid(jnp.logspace(0, 3, 4), jnp.logspace(-3, -1, 4)))
        members = [(g, step, jnp.uint32(0)) for g, step in zip(gamma, lam, strict=True)]
        axes = (0, 0, None, None, None)
        together = (gamma, lam, jnp.uint32(0))
    else:
        seeds = jnp.arange(8, dtype=jnp.uint32)
        members = [(jnp.float32(10), jnp.float32(0.01), seed) for seed in seeds]
        axes = (None, None, 0, None, None)
        together = (jnp.float32(10), jnp.float32(0.01), seeds)
    data = (problem.outer_data, problem.inner_data)

    def seconds(function, *calls):
        tic = time.perf_counter()
        for call in calls:
            jax.block_until_ready(function(*call, *data))
        return time.perf_counter() - tic

    vmapped = seconds(jax.jit(jax.vmap(one, in_axes=axes)), together)
    traced = compiled
    apart = seconds(jax.jit(one), *members)
    return {"members": len(members), "vmapped, s": vmapped, "one after the other, s": apart,
            "ratio": vmapped / apart, "compilations": traced}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for sweeps.json")
    options = parser.parse_args()
    problem = random_cleaning(20_000, 5_000, 785, 10)
    table = {}
    for name, (S, steps, eta) in CASES.items():
        for over in ("grid", "seeds"):
            row = sweep(problem, S, max(10, steps // 10) if options.quick else steps, eta, over)
            table[f"{name}, {over}"] = row
            print(f"{name}, {over}:", {k: round(v, 3) for k, v in row.items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sweeps.json").write_text(
        json.dumps({"table": table, "environment": environment()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
