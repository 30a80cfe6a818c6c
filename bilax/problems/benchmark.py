"""The four problems of the field's own benchmark, with the exact outer objective among what is measured.

- a penalty per feature (ijcnn1): logistic regression;
- a penalty per class (covtype): softmax regression;
- a weight per sample whose label may be wrong (MNIST): softmax regression;
- a simulated quadratic.

Phi is the outer loss at the exact inner solution, in float64; ``gap`` is its distance from the lowest value known
(`optima.json`, which says how each was found). Phi of the third is not convex in 20,000 weights: its lowest value is
the lowest that a long exact descent found.
"""

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from bilax.problem import Problem
from bilax.problems.classification import cross_entropy
from bilax.problems.exact import Exact, Samples
from bilax.problems.split import Split
from bilax.types import PyTree

START = 2442  # of the random starting point
CLEANING_PENALTY = 0.4  # 0.2 |Y|^2, as half of 0.4 |Y|^2


@lru_cache
def optimum(name: str) -> float:
    """Return the lowest known value of Phi; NaN if it was never looked for."""
    found = json.loads(files("bilax.problems").joinpath("optima.json").read_text())
    return found.get(name, {}).get("Phi", float("nan"))


def penalty_per_feature(data: Split, name: str = "") -> Problem:
    """G = mean log(1 + exp(-t a'y)) + 1/2 sum_j exp(x_j) y_j^2; F is the same loss on the validation rows."""
    d = data.features.shape[1]
    rng = np.random.default_rng(START)
    y0, x0 = rng.normal(size=d), np.log(rng.uniform(size=d))
    exact = exact_penalty_per_feature(data)
    return _problem(name, (_logistic_outer, _logistic_inner), data, x0, y0, exact, lambda y: y[:, None])


def exact_penalty_per_feature(data: Split) -> Exact:
    inner, outer = _samples(data, 1)
    return Exact(
        inner,
        outer,
        weights=lambda x: np.ones(len(inner.labels)),
        penalties=lambda x: np.exp(x)[:, None],
        cross=lambda x, Y, V, *scores: (np.exp(x)[:, None] * Y * V).sum(1),
    )


def penalty_per_class(data: Split, name: str = "") -> Problem:
    """G = mean cross-entropy + 1/2 sum_c exp(x_c) |Y_c|^2; F is the cross-entropy on the validation rows."""
    classes = int(data.labels.max()) + 1
    y0, x0 = np.zeros((data.features.shape[1], classes)), np.full(classes, -2.0)
    return _problem(name, (_softmax_outer, _softmax_inner), data, x0, y0, exact_penalty_per_class(data), lambda y: y)


def exact_penalty_per_class(data: Split) -> Exact:
    inner, outer = _samples(data, int(data.labels.max()) + 1)
    return Exact(
        inner,
        outer,
        weights=lambda x: np.ones(len(inner.labels)),
        penalties=lambda x: np.exp(x)[None, :],
        cross=lambda x, Y, V, *scores: (np.exp(x) * Y * V).sum(0),
    )


def weight_per_sample(data: Split, name: str = "") -> Problem:
    """G = mean_i sigmoid(x_i) cross-entropy_i + 0.2 |Y|^2; F is the cross-entropy on the validation rows."""
    classes, n = int(data.labels.max()) + 1, len(data.labels)
    y0, x0 = np.zeros((data.features.shape[1], classes)), np.full(n, -2.0)
    exact = exact_weight_per_sample(data)
    return _problem(name, (_softmax_outer, _cleaning_inner), data, x0, y0, exact, lambda y: y, index=np.arange(n))


def exact_weight_per_sample(data: Split) -> Exact:
    inner, outer = _samples(data, int(data.labels.max()) + 1)

    def cross(x, Y, V, scores, directions):
        slope = scipy.special.expit(x) * scipy.special.expit(-x)
        return slope * (scores.residual * directions).sum(1) / len(x)

    return Exact(inner, outer, scipy.special.expit, lambda x: np.full((1, 1), CLEANING_PENALTY), cross)


def _samples(data: Split, classes: int) -> tuple[Samples, Samples]:
    parts = (data.features, data.labels), (data.validation_features, data.validation_labels)
    inner, outer = (Samples(features.astype(np.float64), labels, classes) for features, labels in parts)
    return inner, outer


def _problem(name: str, losses: Any, data: Split, x0: Any, y0: Any, exact: Exact, matrix: Any, **more: Any) -> Problem:
    parts: dict[str, Any] = {"val": (data.validation_features, data.validation_labels)}
    if data.test_features is not None:
        parts["test"] = data.test_features, data.test_labels
    shown = jax.tree.map(jnp.asarray, parts)
    last = [np.asarray(matrix(np.asarray(y0, np.float64)))]

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, Any]:
        told = {key: float(value) for key, value in _told(matrix(y), shown).items()}
        told |= dict.fromkeys(("gap", "grad_norm2", "inner_gap"), np.nan)
        if not (np.isfinite(np.asarray(x)).all() and np.isfinite(np.asarray(y)).all()):
            return told
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient, solution = exact.value_and_gradient(np.asarray(x, np.float64), last[0])
        if np.isfinite(value):
            last[0] = solution
        far = np.linalg.norm(np.asarray(matrix(y), np.float64) - solution)
        told |= {"gap": value - optimum(name), "grad_norm2": float(gradient @ gradient), "inner_gap": float(far)}
        return told

    outer_loss, inner_loss = losses
    return Problem(
        outer_loss,
        inner_loss,
        outer_data={"features": data.validation_features, "labels": data.validation_labels},
        inner_data={"features": data.features, "labels": data.labels, **more},
        x0=jnp.asarray(x0, jnp.float32),
        y0=jnp.asarray(y0, jnp.float32),
        metrics=metrics,
    )


@jax.jit
def _told(Y: jax.Array, parts: dict[str, tuple[jax.Array, jax.Array]]) -> dict[str, jax.Array]:
    told = {}
    for name, (features, labels) in parts.items():
        scores = features @ Y
        if Y.shape[1] == 1:
            told[f"{name}_loss"] = jnp.mean(jax.nn.softplus(-labels * scores[:, 0]))
            told[f"{name}_error"] = jnp.mean(labels * scores[:, 0] <= 0)
        else:
            told[f"{name}_loss"] = jnp.mean(cross_entropy(scores, labels))
            told[f"{name}_error"] = jnp.mean(jnp.argmax(scores, axis=1) != labels)
    return told


def _logistic_inner(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    return _logistic_outer(x, y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _logistic_outer(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    return jnp.mean(jax.nn.softplus(-batch["labels"] * (batch["features"] @ y)))


def _softmax_inner(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    return _softmax_outer(x, y, batch) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def _softmax_outer(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    return jnp.mean(cross_entropy(batch["features"] @ y, batch["labels"]))


def _cleaning_inner(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    losses = cross_entropy(batch["features"] @ y, batch["labels"])
    return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses) + 0.5 * CLEANING_PENALTY * jnp.sum(y**2)


def simulated(
    inner_size: int = 32_768, outer_size: int = 1_024, q: int = 100, p: int = 10, mu: float = 0.1, seed: int = START
) -> Problem:
    r"""Both losses are means of 1/2 y'A_i y + 1/2 x'B_i x + x'C_i y + a_i'y + b_i'x, with all matrices of rank one.

    The eigenvalues of the mean A and B lie between mu and 1, the singular values of the mean C between mu and 0.1;
    one eigenvalue of the outer A and B is 0, with the singular value that belongs to it. Starts: y = 0, x = -2.
    """
    rng = np.random.default_rng(seed)
    inner, outer = _rank_one(rng, inner_size, q, p, mu), _rank_one(rng, outer_size, q, p, mu, flat=True)
    A, _, C, a, _ = _mean(inner)
    A_F, B_F, C_F, a_F, b_F = _mean(outer)
    sensitivity = -np.linalg.solve(A, C.T)  # of y*(x), by x
    curvature = B_F + sensitivity.T @ A_F @ sensitivity + C_F @ sensitivity + (C_F @ sensitivity).T

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        y = np.linalg.solve(A, -C.T @ x - a)
        value = 0.5 * y @ A_F @ y + 0.5 * x @ B_F @ x + x @ C_F @ y + a_F @ y + b_F @ x
        return float(value), B_F @ x + C_F @ y + b_F + sensitivity.T @ (A_F @ y + C_F.T @ x + a_F), y

    assert np.linalg.eigvalsh(curvature)[0] > 0  # so that Phi has a minimum
    best = value_and_gradient(np.linalg.solve(curvature, -value_and_gradient(np.zeros(p))[1]))[0]

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient, solution = value_and_gradient(np.asarray(x, np.float64))
            far = float(np.linalg.norm(np.asarray(y, np.float64) - solution))
            return {"gap": value - best, "grad_norm2": float(gradient @ gradient), "inner_gap": far}

    return Problem(
        _rank_one_loss,
        _rank_one_loss,
        outer_data=outer,
        inner_data=inner,
        x0=jnp.full(p, -2.0, jnp.float32),
        y0=jnp.zeros(q, jnp.float32),
        metrics=metrics,
    )


def _rank_one_loss(x: jax.Array, y: jax.Array, batch: PyTree) -> jax.Array:
    squares = 0.5 * jnp.mean((batch["A"] @ y) ** 2) + 0.5 * jnp.mean((batch["B"] @ x) ** 2)
    product = jnp.mean((batch["C_x"] @ x) * (batch["C_y"] @ y))
    return squares + product + jnp.mean(batch["a"] @ y) + jnp.mean(batch["b"] @ x)


def _rank_one(rng: np.random.Generator, n: int, q: int, p: int, mu: float, flat: bool = False) -> dict[str, np.ndarray]:
    U, V = (np.linalg.qr(rng.normal(size=(size, size)))[0] for size in (q, p))
    of_y, of_x, coupling = np.geomspace(mu, 1, q), np.geomspace(mu, 1, p), np.geomspace(mu, 0.1, min(p, q))
    if flat:
        of_y[0] = of_x[0] = coupling[0] = 0
    shared = rng.normal(size=(n, min(p, q))) * coupling**0.5
    parts = {
        "A": rng.normal(size=(n, q)) * of_y**0.5 @ U.T,
        "B": rng.normal(size=(n, p)) * of_x**0.5 @ V.T,
        "C_x": shared @ V[:, : shared.shape[1]].T,
        "C_y": shared @ U[:, : shared.shape[1]].T,
        "a": rng.normal(size=(n, q)),
        "b": rng.normal(size=(n, p)),
    }
    return {name: part.astype(np.float32) for name, part in parts.items()}


def _mean(data: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    wide = {name: part.astype(np.float64) for name, part in data.items()}
    n = len(wide["a"])
    matrices = (wide[left].T @ wide[right] / n for left, right in (("A", "A"), ("B", "B"), ("C_x", "C_y")))
    return *matrices, wide["a"].mean(0), wide["b"].mean(0)
