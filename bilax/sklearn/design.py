"""From features to columns on which a softmax regression is as curved in every direction.

With columns A and mean losses, the curvature of softmax regression is at most half the largest eigenvalue of A'A/n. The
columns here have been scaled, centred and turned so that this is at most 1 whatever the features are, the penalty
included: steps need not be tuned. The penalty is that of the scaled features, not of the turned ones.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

TURNED = 1024  # dense features, at most, that are taken as they are; of more, the main directions
DIRECTIONS = 400
LOOKED_AT = 20_000  # rows, at most, that the axes are taken from
BIAS = np.sqrt(2.0)  # the constant column, of curvature 1


class Design(NamedTuple):
    """How features become columns: ``((X / scale) @ directions - centre) @ basis``, and a constant."""

    scale: np.ndarray
    directions: np.ndarray | None  # None: all of them
    centre: np.ndarray
    basis: np.ndarray
    metric: np.ndarray  # the penalty of each column, relative to that of a scaled feature; 0 for the constant
    largest: float  # penalty for which the curvature is at most 1

    def scaled(self, X: Any) -> Any:
        return (
            scipy.sparse.csr_array(X).multiply(1 / self.scale).tocsr() if scipy.sparse.issparse(X) else X / self.scale
        )

    def __call__(self, X: Any) -> np.ndarray:
        """Return the columns."""
        columns = (_projected(self.scaled(X), self.directions) - self.centre) @ self.basis
        return np.concatenate([columns, np.full((len(columns), 1), BIAS)], axis=1, dtype=np.float32)

    def spread(self, last: int) -> float:
        """Return the curvature in the last columns that a batch of one row has, in the mean over the rows."""
        return float(np.sum(1 - self.largest * self.metric[-last:]))

    def coefficients(self, V: np.ndarray) -> np.ndarray:
        """Return the coefficients of the scaled features, a column for each class, and the intercepts below them."""
        turned = self.basis @ V[:-1]
        intercept = BIAS * V[-1] - self.centre @ turned
        return np.concatenate([turned if self.directions is None else self.directions @ turned, intercept[None]])


def fitted(X: Any, rng: np.random.Generator) -> Design:
    """Return the design for these features."""
    n, d = X.shape
    sparse = scipy.sparse.issparse(X)
    # Columns of a sparse matrix (words, categories) are alike as they are: a rare one must not be blown up.
    size = np.full(d, abs(X).max()) if sparse else np.abs(X - X.mean(0)).max(0)
    scale = np.where(size > 0, size, 1.0).astype(np.float64)
    rows = X if n <= LOOKED_AT else X[np.sort(rng.choice(n, LOOKED_AT, replace=False))]
    rows = _divided(rows, scale)
    directions = _main(rows, rng) if d > (DIRECTIONS if sparse else TURNED) else None
    rows = _projected(rows, directions)
    centre = rows.mean(0)
    moment, axes = np.linalg.eigh((rows - centre).T @ (rows - centre) / (2 * len(rows)))
    moment = np.maximum(moment, 0)
    # The largest penalty: one that leaves little of the features, and 30 times what is usual for so many rows.
    largest = max(1e-3 * float(moment.mean()), 30 / n)
    width = 1 / np.sqrt(moment + largest)
    return Design(scale, directions, centre, axes * width, np.append(width**2, 0.0), largest)


def _divided(X: Any, scale: np.ndarray) -> Any:
    return scipy.sparse.csr_array(X).multiply(1 / scale).tocsr() if scipy.sparse.issparse(X) else X / scale


def _projected(rows: Any, directions: np.ndarray | None) -> np.ndarray:
    projected = rows if directions is None else rows @ directions
    return projected.toarray() if scipy.sparse.issparse(projected) else np.asarray(projected)


def _main(rows: Any, rng: np.random.Generator) -> np.ndarray:
    from sklearn.utils.extmath import randomized_svd

    how: Any = {"n_iter": 2, "random_state": int(rng.integers(2**31))}
    return randomized_svd(rows, min(DIRECTIONS, min(rows.shape) - 1), **how)[2].T
