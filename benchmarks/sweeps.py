"""`bilax.sweep` against its members one after the other, compilation included.

python benchmarks/sweeps.py [--quick] [--out FOLDER]

A 4 x 4 grid of step sizes, and 8 seeds, of MRBO on random images of the shapes of MNIST. The members share one
compiled program too, because step sizes and seeds are traced.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from speed import random_cleaning

import bilax
from bilax.numerics.platforms import Jitted
from bilax.running import sweep as sweeps
from bilax.storage.environment import environment

CASES = {  # batch, steps (most of a second for one member), eta
    "batch 1": (1, 5000, 0.001),
    "batch 16": (16, 2500, 0.001),
    "batch 64": (64, 1000, 0.001),
    "batch 64, eta=auto": (64, 1000, "auto"),
    "batch 1000": (1000, 120, 0.001),
}


COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: COMPILED.append(facts["fun_name"]) if "backend_compile" in event else None
)


def sweep(problem, S, steps, eta, over):
    steps_of = (
        [(g, lam) for g in np.logspace(0, 3, 4) for lam in np.logspace(-3, -1, 4)] if over == "grid" else [(10.0, 0.01)]
    )
    settings = [bilax.MRBO(gamma=gamma, lam=lam, Q=3, eta=eta, S=S) for gamma, lam in steps_of]
    seeds = range(1 if over == "grid" else 8)
    sweeps._program.clear_cache()
    COMPILED.clear()
    tic = time.perf_counter()
    together = jax.block_until_ready(bilax.sweep(problem, settings, steps=steps, seeds=seeds)[0].y)
    swept = time.perf_counter() - tic

    @Jitted  # as the sweep is compiled
    def one(algorithm, seed, outer, inner):
        copy = bilax.Problem(problem.outer_loss, problem.inner_loss, outer, inner)
        return bilax.iterate(copy, algorithm, problem.x0, problem.y0, steps=steps, seed=seed)

    tic = time.perf_counter()
    apart = [
        jax.block_until_ready(one(setting, np.uint32(seed), problem.outer_data, problem.inner_data))[0].y
        for setting in settings
        for seed in seeds
    ]
    apart_seconds = time.perf_counter() - tic
    np.testing.assert_allclose(together.reshape(np.shape(apart)), apart, rtol=0.1, atol=1e-3)
    return {"members": len(apart), "sweep, s": swept, "one after the other, s": apart_seconds,
            "ratio": swept / apart_seconds, "compilations": COMPILED.count("jit(_program)")}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for sweeps.json")
    options = parser.parse_args()
    problem = random_cleaning(20_000, 5_000, 785, 10)
    sweep(problem, 2, 1, 0.001, "grid")  # loads what is used once per process
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
