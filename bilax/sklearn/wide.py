"""The last fit for features too many to be turned: all of them, with what was learned on their main directions."""

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

PENALTIES = (0.3, 3.0)  # over the number of rows; tried on the trusted rows that were held out
STEPS = 60


def fit(
    X: Any, label: np.ndarray, confusion: np.ndarray, held: np.ndarray, start: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts.

    ``confusion[i, k]`` is the logarithm of the chance that a row of class k has row i's label; ``held`` marks the
    trusted rows that choose the penalty, and then train too.
    """
    best = np.concatenate([start[0], start[1][:, None]], axis=1)
    penalty = PENALTIES[0] / len(label)
    if held.any():
        train, tried = ~held, []
        for number in PENALTIES:
            W = _minimised(X[train], confusion[train], number / len(label), best)
            chances = log_softmax(X[held] @ W[:, :-1].T + W[:, -1], axis=1)
            tried.append((-chances[np.arange(held.sum()), label[held]].mean(), number / len(label), W))
        _, penalty, best = min(tried, key=lambda one: one[0])
    W = _minimised(X, confusion, penalty, best)
    return W[:, :-1], W[:, -1]


def _minimised(X: Any, confusion: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    n, transposed = X.shape[0], X.T.tocsr() if hasattr(X, "tocsr") else X.T

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(start.shape)
        joint = log_softmax(X @ W[:, :-1].T + W[:, -1], axis=1)
        through = joint + confusion
        residual = np.exp(joint) - softmax(through, axis=1)
        slope = np.empty_like(W)
        slope[:, :-1] = (transposed @ residual).T / n + penalty * W[:, :-1]
        slope[:, -1] = residual.mean(0)
        value = -logsumexp(through, axis=1).mean() + penalty / 2 * np.sum(W[:, :-1] ** 2)
        return float(value), slope.ravel()

    return minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x.reshape(start.shape)
