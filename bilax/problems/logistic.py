"""Logistic regression on sparse documents with one penalty per feature, learned on validation data."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from bilax.problem import Problem
from bilax.problems.classification import cross_entropy, losses_and_accuracy
from bilax.sparse import Rows
from bilax.types import PyTree


class Documents(Protocol):
    """Sparse features (scipy, a row per document) and labels, for training, validation and test."""

    @property
    def features(self) -> Any: ...
    @property
    def labels(self) -> np.ndarray: ...
    @property
    def validation_features(self) -> Any: ...
    @property
    def validation_labels(self) -> np.ndarray: ...
    @property
    def test_features(self) -> Any: ...
    @property
    def test_labels(self) -> np.ndarray: ...
    @property
    def classes(self) -> int: ...


def logistic(documents: Documents) -> Problem:
    r"""Return the problem of the paper's experiment on 20 Newsgroups (Appendix B).

    .. math::
        \min_\lambda \frac{1}{|V|} \sum_{i \in V} \mathrm{CE}(a_i w^*, l_i), \qquad
        w^* = \arg\min_w \frac{1}{|T|} \sum_{i \in T} \mathrm{CE}(a_i w, l_i)
              + \frac{1}{c p} \sum_{j=1}^p \exp(\lambda_j) \sum_{i=1}^c w_{ji}^2

    x is lambda, one number per feature; y is w, of shape (features, classes), so that an entry of a document meets a
    row of w. Both start at 0. The documents stay sparse.

    Args:
      documents: such as `bilax.datasets.newsgroups` and `bilax.datasets.digit_documents` return.

    Returns:
      A `bilax.Problem`, whose metrics are the losses and the accuracies.

    >>> from bilax.datasets import digit_documents
    >>> problem = logistic(digit_documents())
    >>> problem.x0.shape, problem.y0.shape
    ((64,), (64, 10))
    """
    training, validation, test = (
        Rows.from_scipy(part) for part in (documents.features, documents.validation_features, documents.test_features)
    )
    shape = (training.columns, documents.classes)
    parts = {
        "train": (training, jnp.asarray(documents.labels)),
        "val": (validation, jnp.asarray(documents.validation_labels)),
        "test": (test, jnp.asarray(documents.test_labels)),
    }
    return Problem(
        _outer_loss,
        _inner_loss,
        outer_data={"features": validation, "labels": documents.validation_labels},
        inner_data={"features": training, "labels": documents.labels},
        x0=jnp.zeros(shape[0], training.dtype),
        y0=jnp.zeros(shape, training.dtype),
        metrics=lambda x, y: losses_and_accuracy(y, parts),
    )


def _inner_loss(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    penalty = jnp.sum(jnp.exp(x) * jnp.sum(y**2, axis=1)) / y.size
    return jnp.mean(cross_entropy(batch["features"] @ y, batch["labels"])) + penalty


def _outer_loss(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    return jnp.mean(cross_entropy(batch["features"] @ y, batch["labels"]))
