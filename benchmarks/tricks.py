"""What each trick brings: the time of a step with all of them, over its time without one.

python benchmarks/tricks.py [--quick] [--out FOLDER]

MRBO with batches of 1000 and SUSTAIN with single samples on MNIST hyper-cleaning, and MRBO on logistic regression with
two classes, whose weights are a vector.
"""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from speed import METHODS, mnist_problem, ours, turns

import bilax
from bilax.storage.environment import environment


def one_after_the_other(fn, new, old):
    return fn(*new), fn(*old)


def with_a_loop(key, number):
    """Threefry as JAX compiles it on a CPU."""
    blocks = jnp.concatenate([jnp.zeros_like(number).ravel(), number.ravel()])
    first, second = jnp.split(threefry_2x32(key[:2], blocks), 2)
    return first.reshape(number.shape), second.reshape(number.shape)


def looking_at_the_state(step):
    """A step that is undone if anything in the new state is not finite."""

    def looked_at(self, oracle, key, state):
        new, info = step(self, oracle, key, state)
        floats = [leaf for leaf in jax.tree.leaves(new) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        finite = jnp.all(jnp.array([jnp.max(jnp.abs(leaf)) < jnp.inf for leaf in floats]))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state), info

    return looked_at


TRICKS = {
    "both points of a recursion together": [
        ("bilax.algorithms.mrbo.at_two_points", one_after_the_other),
        ("bilax.algorithms.sustain.at_two_points", one_after_the_other),
    ],
    "point and direction in one product": [
        ("bilax.numerics.second_derivatives.fast_products", lambda fn: fn),
        ("bilax.oracle.fast_products", lambda fn: fn),
    ],
    "keys without loops": [
        ("bilax.sampling.keys._threefry", with_a_loop),
        ("bilax.sampling.keys._derive", with_a_loop),
    ],
    "a step looks at its norms, not at the state": [
        ("bilax.algorithms.mrbo.MRBO.step", looking_at_the_state(bilax.MRBO.step)),
        ("bilax.algorithms.sustain.SUSTAIN.step", looking_at_the_state(bilax.SUSTAIN.step)),
    ],
    "logits with the classes first": [],  # another loss, see below
}


def cleaning(classes_first=True):
    """Return a new problem with losses of its own, so that nothing compiled before is used again."""
    problem, _ = mnist_problem()

    def cross_entropy(batch, y):
        if classes_first:
            from bilax.problems.classification import cross_entropy

            return cross_entropy(y @ batch["features"].T, batch["labels"], axis=0)
        logits = batch["features"] @ y.T
        mine = jnp.sum(jnp.where(batch["labels"][:, None] == jnp.arange(logits.shape[1]), logits, 0), axis=1)
        return jax.nn.logsumexp(logits, axis=1) - mine

    def inner_loss(x, y, batch):
        return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * cross_entropy(batch, y)) + 0.001 * jnp.sum(y**2)

    def outer_loss(x, y, batch):
        return jnp.mean(cross_entropy(batch, y))

    return bilax.Problem(outer_loss, inner_loss, problem.outer_data, problem.inner_data, problem.x0, problem.y0)


def two_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 785), np.float32)
    data = {"features": X, "sign": np.sign(X[:, 0])}

    def loss(x, y, batch):
        return jnp.mean(jnp.logaddexp(0, -batch["sign"] * (batch["features"] @ y)))

    def inner_loss(x, y, batch):
        return loss(x, y, batch) + jnp.sum(jnp.exp(x) * y**2)

    return bilax.Problem(lambda *a: loss(*a), inner_loss, data, data, jnp.zeros(785), jnp.zeros(785))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for tricks.json")
    options = parser.parse_args()
    few = 10 if options.quick else 1
    cases = {
        "MRBO, batch 1000": (cleaning, METHODS["MRBO"][0], 100 // few),
        "SUSTAIN, batch 1": (cleaning, METHODS["SUSTAIN"][0], 3000 // few),
        "MRBO, batch 1000, weights are a vector": (two_classes, METHODS["MRBO"][0], 100 // few),
    }
    table = {}
    for case, (make, algorithm, steps) in cases.items():
        measures = {"all": ours(make(), algorithm, steps)}
        for trick, patches in TRICKS.items():
            with ExitStack() as stack:
                for target, instead in patches:
                    stack.enter_context(mock.patch(target, instead))
                if patches:
                    measures[trick] = ours(make(), algorithm, steps)
                elif make is cleaning:
                    measures[trick] = ours(cleaning(classes_first=False), algorithm, steps)
        times = turns(measures, 3 if options.quick else 9)
        table[case] = {name: median(t["all"] / t[name] for t in times) for name in measures if name != "all"}
        print(case, {name: round(ratio, 3) for name, ratio in table[case].items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "environment": environment()}
    (options.out / "tricks.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
