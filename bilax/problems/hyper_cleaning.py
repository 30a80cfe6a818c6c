"""Hyper-cleaning: learn a weight for every training sample so that the model fits a small trusted set."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax.functions import Loss
from bilax.numerics.tree import copied
from bilax.problem import Metrics, Problem
from bilax.problems.classification import cross_entropy, losses_and_accuracy
from bilax.types import PyTree


class HyperCleaning(NamedTuple):
    """Data some of whose labels are wrong, and a clean set for validation and for test.

    Attributes:
      features: one row per sample, with a bias feature.
      labels: as given, some of them wrong.
      true_labels: what they should be, by which a result is judged.
      trusted_features: for the outer loss.
      trusted_labels: theirs, all of them right.
      test_features: to test on.
      test_labels: theirs, all of them right.
      classes: the number of classes; labels are numbers from 0.
    """

    features: np.ndarray
    labels: np.ndarray
    true_labels: np.ndarray
    trusted_features: np.ndarray
    trusted_labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    classes: int

    @property
    def corrupted(self) -> np.ndarray:
        """Which labels are wrong."""
        return self.labels != self.true_labels


def corrupt_labels(labels: np.ndarray, rate: float, classes: int, seed: int) -> np.ndarray:
    """Return a copy in which round(rate * n) labels, chosen at random, are moved to a different class.

    Args:
      labels: numbers from 0.
      rate: the share of labels to move, from 0 to 1.
      classes: the number of classes.
      seed: decides which, and to where.

    Returns:
      The labels, as an array of the same shape.

    >>> labels = np.zeros(10, int)
    >>> (corrupt_labels(labels, 0.3, classes=4, seed=0) != labels).sum()
    np.int64(3)
    """
    if isinstance(rate, str) or not 0 <= rate <= 1:
        raise ValueError(f"the noise rate must be a number from 0 to 1; got {rate!r}.")
    if classes < 2:
        raise ValueError(f"labels can be corrupted among at least 2 classes; got {classes}.")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(labels))[: round(rate * len(labels))]
    noisy = np.array(labels)
    noisy[chosen] = (noisy[chosen] + rng.integers(1, classes, size=len(chosen))) % classes
    return noisy


def hyper_cleaning(data: HyperCleaning, C: float = 0.001, y0: PyTree = None) -> Problem:
    r"""Return the problem of the paper's Appendix B.

    .. math::
        \min_\lambda \frac{1}{|V|} \sum_{i \in V} \mathrm{CE}(w^* a_i, l_i), \qquad
        w^* = \arg\min_w \frac{1}{|T|} \sum_{i \in T} \sigma(\lambda_i) \mathrm{CE}(w a_i, l_i) + C \|w\|^2

    x is lambda, one number per training sample, 0 at the start; y is w, which starts at ``y0`` (by default 0); its
    shape, (classes, features), makes the backward pass cheap. A batch holds the numbers of its samples, so that each
    weight meets its own sample.

    Args:
      data: such as `bilax.datasets.digits` and `bilax.datasets.mnist` return.
      C: the penalty.
      y0: where w starts.

    Returns:
      A `bilax.Problem`, whose metrics are the losses, the accuracies and how well the weights tell wrong labels.

    >>> from bilax.datasets import digits
    >>> problem = hyper_cleaning(digits(0.3))
    >>> problem.x0.shape, problem.y0.shape
    ((1000,), (10, 65))
    """
    if not isinstance(data, HyperCleaning):
        raise TypeError(f"data must be a bilax.problems.HyperCleaning; got {type(data).__name__}.")
    if isinstance(C, (str, bool)) or not 0 <= C < float("inf"):
        raise ValueError(f"C must be a finite number >= 0; got {C!r}.")
    n, features = data.features.shape
    dtype = jax.dtypes.canonicalize_dtype(data.features.dtype)
    outer_loss, inner_loss = _losses(float(C))
    return Problem(
        outer_loss,
        inner_loss,
        outer_data={"features": data.trusted_features, "labels": data.trusted_labels},
        inner_data={"features": data.features, "labels": data.labels, "index": np.arange(n)},
        x0=jnp.zeros(n, dtype),
        y0=jnp.zeros((data.classes, features), dtype) if y0 is None else y0,
        metrics=_metrics(data),
    )


@lru_cache  # the same functions for the same C: problems that differ in their data share a compiled program
def _losses(C: float) -> tuple[Loss, Loss]:
    def inner_loss(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
        weights = jax.nn.sigmoid(x[batch["index"]])
        loss = cross_entropy(y @ batch["features"].T, batch["labels"], axis=0)
        return jnp.mean(weights * loss) + C * jnp.sum(y**2)

    def outer_loss(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
        return jnp.mean(cross_entropy(y @ batch["features"].T, batch["labels"], axis=0))

    return outer_loss, inner_loss


def _metrics(data: HyperCleaning) -> Metrics:
    corrupted = data.corrupted
    parts = copied(
        {
            "train": (data.features, data.true_labels),
            "val": (data.trusted_features, data.trusted_labels),
            "test": (data.test_features, data.test_labels),
        }
    )

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, Any]:
        sigmoid, told = _measured(x, y, parts)
        weights = np.asarray(sigmoid)
        return {
            **told,
            "auroc": auroc(-weights, corrupted),
            "weight_clean": np.nan if corrupted.all() else weights[~corrupted].mean(),
            "weight_corrupted": weights[corrupted].mean() if corrupted.any() else np.nan,
        }

    return metrics


@jax.jit  # one program in place of three
def _measured(x: jax.Array, y: jax.Array, parts: PyTree) -> tuple[jax.Array, dict[str, jax.Array]]:
    return jax.nn.sigmoid(x), losses_and_accuracy(y.T, parts)


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """Return the chance that a positive sample scores above a negative one, ties counted half.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))
