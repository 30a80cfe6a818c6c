"""The time of a step whose samples are read from a file, next to the same step with the data in memory.

python benchmarks/streaming.py [--quick] [--out FOLDER]

60,000 rows of 784 numbers in a memory-mapped file that the system has in its cache, batches of 1,000: handed to the
program as it is, and, as a file is that does not fit into memory, read batch by batch. All runs give the same numbers,
which is checked. (The first 50 steps, in which programs are compiled, are left out.)
"""

import argparse
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import bilax
from bilax.sources import Arrays
from bilax.storage.environment import environment

S, D, C = 1000, 784, 10
METHODS = {
    "SOBA": bilax.SOBA(S=S, rho_v=0.01),
    "MRBO": bilax.MRBO(S=S, eta=0.01),
    "stocBiO": bilax.StocBiO(S=S, eta=0.01),
}


class Larger(Arrays):
    """Files that are not handed over."""


def each(y, batch):
    logits = batch["X"] @ y
    return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, batch["t"][:, None], 1)[:, 0]


def outer_loss(x, y, batch):
    return jnp.mean(each(y, batch))


def inner_loss(x, y, batch):
    return jnp.mean(jax.nn.sigmoid(x[batch["i"]]) * each(y, batch)) + 0.01 * jnp.sum(y**2)


def problem(inner):
    n = 5000
    rng = np.random.default_rng(1)
    outer = {"X": rng.normal(size=(n, D)).astype(np.float32), "t": rng.integers(0, C, n).astype(np.int32)}
    rows = len(inner) if isinstance(inner, Arrays) else len(inner["t"])
    return bilax.Problem(outer_loss, inner_loss, outer, inner, jnp.zeros(rows), jnp.zeros((D, C)))


def per_step(given, algorithm, steps):
    result = bilax.solve(given, algorithm, steps=50 + steps, every=25, metrics=lambda x, y: {}, progress=False)
    rows = [row for row in result.history if row["k"] >= 50]
    return (rows[-1]["seconds"] - rows[0]["seconds"]) / (rows[-1]["k"] - rows[0]["k"]), result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, few steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for streaming.json")
    options = parser.parse_args()
    n, steps = (5000, 50) if options.quick else (60_000, 300)
    rng, table = np.random.default_rng(0), {}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", rng.normal(size=(n, D)).astype(np.float32))
        mapped = np.load(Path(folder) / "X.npy", mmap_mode="r")
        rest = {"t": rng.integers(0, C, n).astype(np.int32), "i": np.arange(n, dtype=np.int32)}
        in_memory = problem({"X": np.array(mapped), **rest})
        handed_over, batch_by_batch = (problem(source({"X": mapped, **rest})) for source in (Arrays, Larger))
        for name, algorithm in METHODS.items():
            memory, one = per_step(in_memory, algorithm, steps)
            table[name] = {"in memory, ms": 1e3 * memory}
            for way, given in {"from a file": handed_over, "batch by batch": batch_by_batch}.items():
                disk, other = per_step(given, algorithm, steps)
                assert np.array_equal(one.x, other.x)
                assert np.array_equal(one.y, other.y)
                table[name] |= {f"{way}, ms": 1e3 * disk, f"ratio, {way}": disk / memory}
            print(name, {what: round(value, 3) for what, value in table[name].items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "streaming.json").write_text(
        json.dumps({"table": table, "environment": environment()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
