"""The last fits for features too many to be turned: all of them, with what was learned on their main directions."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

PENALTIES = (1.0, 4.0)  # over the number of rows; the trusted rows that were held out choose
STEPS = 25


class Wide(NamedTuple):
    W: np.ndarray  # (features + 1, classes), the intercepts last
    unseen: np.ndarray  # chances of the classes, for each row by a fit that has not seen it
    seen: np.ndarray


def fit(
    X: Any, label: np.ndarray, through: np.ndarray, held: np.ndarray, fold: np.ndarray, starts: list[np.ndarray]
) -> Wide:
    """Fit to all rows, and to all but those of each fold.

    ``through[i, k]`` is the logarithm of the chance that a row of class k has row i's label; ``held`` marks the
    trusted rows that choose the penalty, and then train too; ``starts`` are the fits to the main directions, that of
    all rows last.
    """
    n, penalty, best = len(label), PENALTIES[0] / len(label), starts[-1]
    if held.any():
        tried = []
        for number in PENALTIES:
            W = _minimised(X[~held], through[~held], number / n, best)
            chances = log_softmax(_scores(X[held], W), axis=1)
            tried.append((-chances[np.arange(held.sum()), label[held]].mean(), number / n, W))
        _, penalty, best = min(tried, key=lambda one: one[0])
    best = _minimised(X, through, penalty, best)
    unseen = softmax(_scores(X, best), axis=1)
    seen = unseen.copy()
    for number, start in enumerate(starts[:-1]):
        own = fold == number
        W = _minimised(X[~own], through[~own], penalty, start)
        unseen[own] = softmax(_scores(X[own], W), axis=1)
    return Wide(best, unseen, seen)


def _scores(X: Any, W: np.ndarray) -> np.ndarray:
    return X @ W[:-1] + W[-1]


def _minimised(X: Any, through: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    n, transposed = X.shape[0], X.T.tocsr() if hasattr(X, "tocsr") else X.T

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(start.shape)
        log_chances = log_softmax(_scores(X, W), axis=1)
        joint = log_chances + through
        residual = np.exp(log_chances) - softmax(joint, axis=1)
        slope = np.empty_like(W)
        slope[:-1] = transposed @ residual / n + penalty * W[:-1]
        slope[-1] = residual.mean(0)
        value = -logsumexp(joint, axis=1).mean() + penalty / 2 * np.sum(W[:-1] ** 2)
        return float(value), slope.ravel()

    return minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x.reshape(start.shape)
