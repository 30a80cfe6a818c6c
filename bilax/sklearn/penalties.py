"""A penalty for every feature, learned: logistic regressions that have not seen a row must be right about it.

The rows are cut into folds, and each fold's regression is fitted to the others: the inner problem. The penalties, which
all of them share, are chosen so that every row is well predicted by the regression that has not seen it: the outer one.
In between, y is kept in a basis in which the inner problem is as curved in every direction; it is chosen anew a few
times, as the penalties change.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse

from bilax.errors import Doubtful
from bilax.oracle import Counts
from bilax.problem import Problem
from bilax.running.solve import solve
from bilax.sklearn.crossfit import folds_of
from bilax.sklearn.methods import adam, by_part, with_steps
from bilax.sklearn.sizes import filled, rows_for, shares
from bilax.sparse import Rows
from bilax.types import PyTree

RATES = {"common": 0.1, "own": 0.06}  # of Adam, for the common penalty and for what each feature adds to it
ROUNDS = 6  # each with a basis of its own; in the first, the common penalty alone is learned
FALLING = 0.7  # what is left of the rates from one round to the next
REACH = 1.5  # how far a penalty may move in a round, in its logarithm
SQUARE = 1024  # features, at most, of which a whole basis is taken; of more, a scale for each
LOOKED_AT = 20_000  # rows, at most, that the basis is taken from
LEAST, MOST = 1e-4, 1e6  # penalties, for features of mean square 1, in the units of 1/C


@dataclass(frozen=True)
class Folds:
    """The shape of the inner variable: (features + 1, folds * columns), the intercepts first."""

    classes: int
    folds: int

    @property
    def columns(self) -> int:
        return 1 if self.classes == 2 else self.classes

    def losses(self, W: jax.Array, rows: PyTree) -> jax.Array:
        """Return the loss of each row by each fold's regression."""
        scores = rows["features"] @ W[1:] + W[0]
        scores = scores.reshape(scores.shape[0], self.folds, self.columns)
        if self.columns == 1:
            return jax.nn.softplus(jnp.where(rows["label"][:, None] == 1, -1, 1) * scores[:, :, 0])
        chosen = jnp.take_along_axis(scores, rows["label"][:, None, None], axis=2)[:, :, 0]
        return jax.nn.logsumexp(scores, axis=2) - chosen


def weights(x: PyTree, V: jax.Array) -> jax.Array:
    """Return the weights of the features from their coordinates in the basis."""
    basis = x["basis"]
    return basis @ V if basis.ndim == 2 else basis[:, None] * V


def log_penalties(x: PyTree) -> jax.Array:
    """Return the logarithm of each group's penalty, over the number of rows."""
    return x["common"] + x["own"]


@dataclass(frozen=True)
class Fitted:
    """The inner loss: every row, for the regressions of the other folds, and the penalty."""

    of: Folds

    def __call__(self, x: PyTree, V: jax.Array, batch: PyTree) -> jax.Array:
        W = weights(x, V)
        others = batch["fold"][:, None] != jnp.arange(self.of.folds)
        fit = jnp.mean(batch["share"] * jnp.sum(others * self.of.losses(W, batch), axis=1))
        squares = jnp.sum(W[1:] ** 2, axis=1)
        squares = x["group"].T @ squares if "group" in x else squares
        return fit + jnp.sum(jnp.exp(log_penalties(x)) * squares) / 2


@dataclass(frozen=True)
class Unseen:
    """The outer loss: every row, by the regression that has not seen it; and penalties do not differ for nothing."""

    of: Folds

    def __call__(self, x: PyTree, V: jax.Array, batch: PyTree) -> jax.Array:
        losses = self.of.losses(weights(x, V), batch)
        own = jnp.take_along_axis(losses, batch["fold"][:, None], axis=1)
        return jnp.mean(batch["share"] * own[:, 0]) + x["prior"] / 2 * jnp.sum(x["own"] ** 2)


@dataclass(frozen=True)
class Near:
    """Keeps the penalties where the basis of the round serves."""

    def __call__(self, x: PyTree) -> PyTree:
        low, high = x["bounds"]
        own = jnp.clip(log_penalties(x), low, high) - x["common"]
        return {**x, "own": own}


class Learned(NamedTuple):
    log_penalty: np.ndarray  # of each group, in the units of 1/C
    steps: int
    counts: Counts
    diagnostics: dict[str, Any]


def learn(
    features: Any,
    label: np.ndarray,
    classes: int,
    group: np.ndarray | None,
    rng: np.random.Generator,
    *,
    method: Any,
    steps: int,
    batch: int,
    folds: int,
    prior: float,
    progress: bool | None,
    checkpoint_dir: Any,
) -> Learned:
    """Learn the penalties of features of mean square 1; ``group`` marks the features of each group by 1."""
    n, groups = len(label), features.shape[1] if group is None else group.shape[1]
    shape, room = Folds(classes, folds), rows_for(n)
    batch = min(batch, room)
    curved = Curvature(features, most_curved(classes), rng)
    rows = {
        "features": _filled(features, room),
        "label": filled(label.astype(np.int32), room),
        "fold": filled(folds_of(rng, label, folds), room),
        "share": shares(n),
    }
    x: dict[str, Any] = {"common": jnp.asarray(-np.log(n), float), "own": jnp.zeros(groups)}
    fixed: dict[str, Any] = {"prior": jnp.asarray(prior / n, float)}
    fixed |= {} if group is None else {"group": jnp.asarray(group, jnp.float32)}
    W = np.zeros((features.shape[1] + 1, folds * shape.columns), np.float32)
    told, counts, taken = [], Counts(), 0
    for round_ in range(ROUNDS):
        now = np.asarray(log_penalties(x), float)
        low, high = np.log([LEAST / n, MOST / n])
        bounds = np.clip([now - REACH, now + REACH], low, high)
        upper = np.exp(bounds[1])
        basis, coordinates, spread = curved.basis(upper if group is None else group @ upper)
        full = {**x, **fixed, "bounds": jnp.asarray(bounds, float), "basis": jnp.asarray(basis, jnp.float32)}
        rates = {"common": RATES["common"], "own": 0.0 if round_ == 0 else RATES["own"]}
        outer = by_part({name: adam(FALLING**round_ * rate) for name, rate in rates.items()})
        algorithm = with_steps(method, outer, 1 / (1 + spread / batch), batch)
        problem = Problem(
            Unseen(shape), Fitted(shape), rows, rows, x0=full,
            y0=jnp.asarray(coordinates(W), jnp.float32), project_x=Near(),
        )  # fmt: skip
        result = _quietly(
            problem, algorithm, steps=max(1, steps // ROUNDS), seed=int(rng.integers(2**31)), sampler="blocks",
            every=max(1, steps // ROUNDS), progress=progress,
            checkpoint_dir=None if checkpoint_dir is None else f"{checkpoint_dir}/round-{round_}",
        )  # fmt: skip
        if result.status == "interrupted":
            raise KeyboardInterrupt(result.message)
        if result.status in ("diverged", "failed"):
            raise ValueError(f"the fit failed: {result.message}")
        x = {name: result.x[name] for name in x}
        W = np.asarray(weights(result.x, result.y))
        told.append({"penalty": float(n * np.exp(np.median(log_penalties(x)))), "warnings": result.warnings})
        counts, taken = counts + result.counts, taken + result.history[-1]["k"]
    return Learned(np.asarray(log_penalties(x), float) + np.log(n), taken, counts, {"rounds": told})


def _filled(features: Any, rows: int) -> Any:
    if not scipy.sparse.issparse(features):
        return filled(features.astype(np.float32), rows)
    more = scipy.sparse.csr_array((rows - features.shape[0], features.shape[1]), dtype=features.dtype)
    return Rows.from_scipy(scipy.sparse.vstack([features, more], format="csr"))


def most_curved(classes: int) -> float:
    """Return the largest curvature of the loss of one row, by its scores."""
    return 0.25 if classes == 2 else 0.5


def mean_squares(features: Any) -> np.ndarray:
    squares = features.multiply(features) if scipy.sparse.issparse(features) else features**2
    return np.asarray(squares.mean(0)).ravel()


def _quietly(*arguments: Any, **options: Any) -> Any:
    """Solve; doubts are told in the diagnostics, not one by one for each round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Doubtful)
        return solve(*arguments, **options)


class Curvature:
    """The curvature of the losses, at most, and bases in which it is 1, penalties included."""

    def __init__(self, features: Any, most: float, rng: np.random.Generator):
        n, d = features.shape
        rows = features if n <= LOOKED_AT else features[np.sort(rng.choice(n, LOOKED_AT, replace=False))]
        self.rows, self.most, self.whole = rows, most, d <= SQUARE and not scipy.sparse.issparse(features)
        if self.whole:
            ones = np.concatenate([np.ones((rows.shape[0], 1)), rows], axis=1)
            self.moment = most * ones.T @ ones / len(ones)
        else:
            self.moment = most * np.append(1.0, mean_squares(rows))

    def basis(self, penalty: np.ndarray) -> tuple[np.ndarray, Any, float]:
        """Return a basis, the function from weights to their coordinates in it, and the mean curvature of a row."""
        penalty = np.append(0.0, penalty)
        if self.whole:
            root = scipy.linalg.cholesky(self.moment + np.diag(penalty + 1e-9), lower=True)
            basis = scipy.linalg.solve_triangular(root, np.eye(len(penalty)), lower=True, trans=1)
            spread = float(np.sum((self.moment @ basis) * basis))
            return basis, lambda W: root.T @ W, spread
        scale = 1 / np.sqrt(self.moment + penalty + 1e-12)
        scale = 1 / np.sqrt(self._largest(scale) / scale**2 + penalty)  # at least the moment, and the penalty
        return scale, lambda W: W / scale[:, None], float(np.sum(self.moment * scale**2))

    def _largest(self, scale: np.ndarray) -> float:
        """Return the largest eigenvalue of the scaled moment, by power iteration."""
        v, n, value = np.ones(len(scale)), self.rows.shape[0], 1.0
        for _ in range(30):
            v /= np.linalg.norm(v)
            along = self.rows @ (scale[1:] * v[1:]) + scale[0] * v[0]
            v = self.most / n * scale * np.append(along.sum(), self.rows.T @ along)
            value = float(np.linalg.norm(v))
        return 1.05 * value
