"""Differentiation through 100 steps of Adam on a network, next to plain jax.grad through the same scan.

python benchmarks/unrolling.py [--quick] [--out FOLDER]

A network with 101,770 weights (784, 128, 10), a weight decay for each of its four arrays, batches of 64. Memory is what
the compiled program needs beside its arguments and results, as XLA tells it; times are the least of several, the two
programs in turns.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import bilax
from bilax.hypergrad import unrolled
from bilax.optimisers import Optimiser
from bilax.sampling import keys
from bilax.storage.environment import environment

BATCH = 64


def problem_of(sizes, samples):
    """Return hyper-decay of a network on random images whose labels a random network gave."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(samples, sizes[0])).astype(np.float32)
    labels = (np.tanh(images @ rng.normal(size=(sizes[0], 32)) / 28) @ rng.normal(size=(32, sizes[-1]))).argmax(1)
    data = {"images": images, "labels": labels.astype(np.int32)}
    y0 = {}
    for i, (a, b) in enumerate(pairwise(sizes)):
        y0 |= {f"W{i}": jnp.asarray(rng.normal(size=(a, b)) / np.sqrt(a), jnp.float32), f"b{i}": jnp.zeros(b)}

    def loss(y, batch):
        hidden = batch["images"]
        for i in range(len(sizes) - 2):
            hidden = jnp.tanh(hidden @ y[f"W{i}"] + y[f"b{i}"])
        logits = hidden @ y[f"W{len(sizes) - 2}"] + y[f"b{len(sizes) - 2}"]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]))

    def inner(x, y, batch):
        return loss(y, batch) + sum(jnp.exp(x[name]) * jnp.sum(y[name] ** 2) for name in y)

    x0 = {name: jnp.asarray(-6.0) for name in y0}
    return bilax.Problem(lambda x, y, batch: loss(y, batch), inner, data, data, x0=x0, y0=y0)


def programs(problem, T):
    """Return our hypergradient and the plain one, as compiled functions of (x, y)."""
    oracle, adam, key = bilax.make_oracle(problem), optax.adam(1e-3), jax.random.key(0)
    key_F, key_y = jax.random.split(key)

    def ours(x, y):
        B_F, step = oracle.draw_F(key_F, BATCH), Optimiser(adam)
        return unrolled.hypergrad(oracle, key_y, B_F, x, y, step.init(y), step, T, T, BATCH).estimate.value

    def plain(x, y):
        def end(x):
            def once(carry, key_t):
                y, memory = carry
                update, memory = adam.update(jax.grad(problem.inner_loss, 1)(x, y, oracle.draw_G(key_t, BATCH)), memory)
                return (optax.apply_updates(y, update), memory), None

            (last, _), _ = jax.lax.scan(once, (y, adam.init(y)), keys.for_loop(key_y, T))
            return problem.outer_loss(x, last, oracle.draw_F(key_F, BATCH))

        return jax.grad(end)(x)

    return {
        name: jax.jit(fn).lower(problem.x0, problem.y0).compile() for name, fn in (("bilax", ours), ("plain", plain))
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, ten steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for unrolling.json")
    options = parser.parse_args()
    sizes, T, repeats = ((16, 8, 4), 10, 2) if options.quick else ((784, 128, 10), 100, 7)
    problem = problem_of(sizes, 2_000)
    compiled = programs(problem, T)
    point = problem.x0, problem.y0
    found = {name: ravel_pytree(program(*point))[0] for name, program in compiled.items()}
    seconds = {name: [] for name in compiled}
    for _ in range(repeats):
        for name, program in compiled.items():
            tic = time.perf_counter()
            jax.block_until_ready(program(*point))
            seconds[name].append(time.perf_counter() - tic)
    size = float(jnp.linalg.norm(found["plain"]))
    table = {
        name: {"ms": 1e3 * min(seconds[name]), "MB": program.memory_analysis().temp_size_in_bytes / 1e6}
        for name, program in compiled.items()
    }
    facts = {
        "table": table,
        "weights": ravel_pytree(problem.y0)[0].size,
        "steps": T,
        "difference": float(jnp.linalg.norm(found["bilax"] - found["plain"])) / size,
        "environment": environment(),
    }
    print(json.dumps({name: value for name, value in facts.items() if name != "environment"}, indent=2))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "unrolling.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
