"""Softmax regressions, one for each fold, as the inner problem of a bilevel problem; at the end one for all rows, too.

Each fold's regression sees the rows of the other folds, so that every row is judged by one that has not seen it. They
are trained together: y holds their weights side by side, and a batch is read once for all of them.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.types import PyTree

NOWHERE = -1e9  # the logarithm of a chance that is nil
GIVEN = 0.3  # what the given labels count for in the outer loss, beside the trusted ones


@dataclass(frozen=True)
class Regressions:
    """The shape of the inner variable: (columns, count * classes)."""

    classes: int
    folds: int
    of_all: bool = False  # whether the last one is fitted to all rows

    @property
    def count(self) -> int:
        return self.folds + self.of_all

    def log_chances(self, V: jax.Array, columns: Any) -> jax.Array:
        """Return the logarithms of the chances of every class, of shape (rows, count, classes)."""
        scores = columns @ V
        return jax.nn.log_softmax(scores.reshape(scores.shape[0], self.count, self.classes))

    def sees(self, fold: jax.Array) -> jax.Array:
        """Tell which regressions are trained on a row; one of no fold (-1) trains that of all rows alone."""
        slots = jnp.arange(self.count)
        others = (fold[:, None] != slots) & (fold[:, None] >= 0)
        return others | (slots == self.folds)

    def own(self, log_chances: jax.Array, fold: jax.Array) -> jax.Array:
        """Return what the regression that has not seen a row says of it."""
        return jnp.take_along_axis(log_chances, fold[:, None, None], axis=1)[:, 0]


@dataclass(frozen=True)
class Unseen:
    """The outer loss: of trusted labels, and of given ones, each by the regression that has not seen the row.

    The trusted labels decide. The given ones keep the chances of confusion from wandering where few rows are trusted:
    there are many of them, and these chances must explain them.
    """

    of: Regressions

    def __call__(self, x: PyTree, V: jax.Array, batch: PyTree) -> jax.Array:
        chances = self.of.own(self.of.log_chances(V, batch["columns"]), batch["fold"])
        trusted = -jnp.mean(jnp.take_along_axis(chances, batch["label"][:, None], axis=1))
        chances = self.of.own(self.of.log_chances(V, batch["given columns"]), batch["given fold"])
        given = -jnp.mean(jax.nn.logsumexp(chances + log_confusion(x)[:, batch["given label"]].T, axis=-1))
        return trusted + GIVEN * given


@dataclass(frozen=True)
class Noisy:
    """The inner loss: of the given labels, as seen through the chances that a class is given another's label.

    A row's true class k has the chance p_k; its label is given with the chance T[k, label]; so the label's own chance
    is the sum of p_k T[k, label]. For trusted rows T is the identity. Every row has a weight, from 0 to 1, and a share
    in the mean.
    """

    of: Regressions

    def __call__(self, x: PyTree, V: jax.Array, batch: PyTree) -> jax.Array:
        label, trusted = batch["label"], batch["trusted"]
        itself = jnp.where(jnp.arange(self.of.classes) == label[:, None], 0.0, NOWHERE)
        through = jnp.where(trusted[:, None], itself, log_confusion(x)[:, label].T)
        loss = -jax.nn.logsumexp(self.of.log_chances(V, batch["columns"]) + through[:, None], axis=-1)
        weight = jnp.where(trusted, 1.0, row_weights(x)[batch["row"]])
        fit = jnp.mean(batch["share"] * jnp.sum(self.of.sees(batch["fold"]) * weight[:, None] * loss, axis=1))
        return fit + jnp.exp(x["penalty"]) / 2 * jnp.sum(x["metric"][:, None] * V**2)


@dataclass(frozen=True)
class Bounded:
    """Keeps the penalty where the curvature of the inner loss is at most 1."""

    def __call__(self, x: PyTree) -> PyTree:
        return {**x, "penalty": jnp.clip(x["penalty"], x["bounds"][0], x["bounds"][1])}


def log_confusion(x: PyTree) -> jax.Array:
    return jax.nn.log_softmax(x["confusion"])


def row_weights(x: PyTree) -> jax.Array:
    return jax.nn.sigmoid(x["weights"])


def polished(loss: Any, x: PyTree, V: jax.Array, data: PyTree, steps: int) -> jax.Array:
    """Return V after accelerated gradient steps on all rows, with restarts; the curvature is at most 1."""

    def step(carry: Any, _: Any) -> Any:
        V, ahead, t = carry
        slope = jax.grad(loss, 1)(x, ahead, data)
        new = ahead - slope
        uphill = jnp.sum(slope * (new - V)) > 0  # the momentum points against the slope: begin anew
        t = jnp.where(uphill, 1.0, t)
        after = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        return (new, new + (t - 1) / after * (new - V), after), None

    return jax.lax.scan(step, (V, V, jnp.ones((), V.dtype)), length=steps)[0][0]


polished = jax.jit(polished, static_argnums=(0, 4))


def folds_of(rng: np.random.Generator, labels: np.ndarray, folds: int) -> np.ndarray:
    """Return a fold for each row, each fold with its share of every class."""
    fold, start = np.empty(len(labels), np.int32), 0
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        fold[rows] = (start + np.arange(len(rows))) % folds
        start += len(rows)
    return fold
