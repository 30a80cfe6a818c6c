"""The last fits for features too many to be turned: all of them, with what was learned on their main directions.

A penalty that is right for the ranking of the classes makes their chances too timid, the more so the more labels are
wrong. So penalties are compared, and chances told, at the temperature that suits trusted rows which a fit has not seen.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax

PENALTIES = (1.0, 4.0)  # over the number of rows; the trusted rows that were held out choose
STEPS = 25
TEMPERATURES = (-2.0, 4.0)  # logarithms of the factors of the scores that are tried


class Wide(NamedTuple):
    W: np.ndarray  # (features + 1, classes), the intercepts last
    unseen: np.ndarray  # chances of the classes, for each row by a fit that has not seen it
    seen: np.ndarray


def fit(
    X: Any,
    label: np.ndarray,
    through: np.ndarray,
    trusted: np.ndarray,
    held: np.ndarray,
    fold: np.ndarray,
    starts: list[np.ndarray],
) -> Wide:
    """Fit to all rows, and to all but those of each fold.

    ``through[i, k]`` is the logarithm of the chance that a row of class k has row i's label; ``held`` marks the
    ``trusted`` rows that choose the penalty, and then train too; ``starts`` are the fits to the main directions, that
    of all rows last.
    """
    n, penalty, best = len(label), PENALTIES[0] / len(label), starts[-1]
    if held.any():
        tried = []
        for number in PENALTIES:
            W = _minimised(X[~held], through[~held], number / n, best)
            scores = _scores(X[held], W)
            # Labels that may be wrong tell no temperature.
            loss = _tempered(scores, label[held])[1] if trusted.any() else _loss(scores, label[held])
            tried.append((loss, number / n, W))
        _, penalty, best = min(tried, key=lambda one: one[0])
    best = _minimised(X, through, penalty, best)
    seen = _scores(X, best)
    unseen = seen.copy()
    for number, start in enumerate(starts[:-1]):
        own = fold == number
        W = _minimised(X[~own], through[~own], penalty, start)
        unseen[own] = _scores(X[own], W)
    judged = trusted & (fold >= 0)  # by a fit that has not seen them
    factor = _tempered(unseen[judged], label[judged])[0] if judged.any() else 1.0
    return Wide(factor * best, softmax(factor * unseen, axis=1), softmax(factor * seen, axis=1))


def _loss(scores: np.ndarray, label: np.ndarray) -> float:
    return -float(log_softmax(scores, axis=1)[np.arange(len(label)), label].mean())


def _tempered(scores: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """Return the factor of the scores at which these labels are most likely, and their loss then."""
    doubt = 1 / (len(label) + 2)  # that all of a few rows are right does not make it certain

    def loss(logarithm: float) -> float:
        chances = log_softmax(np.exp(logarithm) * scores, axis=1)
        given = chances[np.arange(len(label)), label]
        return -float(((1 - doubt) * given + doubt * chances.mean(1)).mean())

    found = minimize_scalar(loss, bounds=TEMPERATURES, method="bounded")
    return float(np.exp(found.x)), float(found.fun)


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
