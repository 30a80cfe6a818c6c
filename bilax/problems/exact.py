"""Linear classifiers in float64: the inner solution to rounding, the outer objective there, and its exact gradient.

What a stochastic method approaches is known here, so that curves can show a distance and not only a loss.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize

TOLERANCE = 1e-10  # of the norm of the inner gradient, and relative in linear systems
EXACT_ENOUGH = 1e-7  # above it, what was found is not called a solution
DENSE = 400  # unknowns, up to which the Hessian is factorised
CHUNK = 2_048  # rows at a time, which stay near the processor
SLOW = 25  # products in a linear system after which the factors are made anew
MOST_NEWTON, MOST_CG = 60, 2_000
ROUGH = 1e-4  # relative tolerance that products in float32 can keep
MOST_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Samples:
    """Features (n, d) and labels of a linear model: +1 or -1 for a single score, or 0 ... classes - 1 for as many."""

    features: np.ndarray
    labels: np.ndarray
    classes: int = 1

    def at(self, Y: np.ndarray) -> "Scores":
        return Scores(self, self.features @ Y)

    @cached_property
    def narrow(self) -> np.ndarray:
        return self.features.astype(np.float32)


class Scores:
    """The losses of a linear model at one point, with their derivatives."""

    def __init__(self, samples: Samples, scores: np.ndarray):
        self.samples = samples
        labels = samples.labels
        if samples.classes == 1:
            margin = labels[:, None] * scores
            self.losses = np.logaddexp(0, -margin)[:, 0]
            wrong = scipy.special.expit(-margin)
            self.residual = -labels[:, None] * wrong
            self._curved = wrong * (1 - wrong)
        else:
            self.losses = scipy.special.logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
            self._chances = scipy.special.softmax(scores, axis=1)
            self.residual = self._chances.copy()
            self.residual[np.arange(len(labels)), labels] -= 1

    def curved(self, directions: np.ndarray) -> np.ndarray:
        """Return the second derivative by the scores, times a direction for each sample."""
        if self.samples.classes == 1:
            return self._curved * directions
        weighted = self._chances * directions
        return weighted - self._chances * weighted.sum(1, keepdims=True)

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """Return the mean Hessian by all unknowns, those of one feature next to each other, in float32."""
        n, d = self.samples.features.shape
        c, units = self.samples.classes, np.eye(self.samples.classes)
        blocks = np.zeros((c, d, d, c), np.float32)
        columns = [self.curved(np.broadcast_to(unit, self.residual.shape)) * weights[:, None] for unit in units]
        for some in (slice(first, first + CHUNK) for first in range(0, n, CHUNK)):
            A = self.samples.features[some].astype(np.float32)
            for block, column in zip(blocks, columns, strict=True):
                scaled = A[:, :, None] * column[some, None, :].astype(np.float32)
                block += (A.T @ scaled.reshape(len(A), d * c)).reshape(block.shape)
        return blocks.transpose(1, 0, 2, 3).reshape(d * c, d * c).astype(np.float64) / n


@dataclass(eq=False)
class Exact:
    """G = mean w(x) loss + 1/2 sum p(x) Y^2 and F = mean loss, both of linear models; F does not look at x.

    ``weights`` returns w(x), a number per sample, ``penalties`` p(x) in a shape that fits Y, and ``cross`` the
    derivative by x of <grad_Y G, V>, given x, Y, V, the scores at Y and those of V.
    """

    inner: Samples
    outer: Samples
    weights: Callable[[np.ndarray], np.ndarray]
    penalties: Callable[[np.ndarray], np.ndarray]
    cross: Callable[..., np.ndarray]
    _factors: Any = field(default=None, init=False)

    def solution(self, x: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return y*(x), by Newton's method."""
        x, Y = np.asarray(x, np.float64), np.array(start, np.float64)
        for _ in range(MOST_NEWTON):
            scores, value, gradient = self._inner(x, Y)
            size = np.linalg.norm(gradient)
            if size <= TOLERANCE:
                break
            step = self._solve(x, scores, gradient, min(0.1, float(size)))
            Y, better = self._backtracked(x, Y, step, value, float((step * gradient).sum()))
            if not better:
                break
        return Y

    def _backtracked(self, x, Y, step, value, slope) -> tuple[np.ndarray, bool]:
        rounding = 1e-13 * max(1.0, abs(value))
        for halvings in range(30):
            there = Y - 0.5**halvings * step
            if self._inner(x, there)[1] <= value - 1e-4 * 0.5**halvings * slope + rounding:
                return there, True
        return Y, False

    def value_and_gradient(self, x: np.ndarray, start: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return Phi(x), its gradient, and y*(x), which is looked for from ``start``; NaN where it was not found."""
        x = np.asarray(x, np.float64)
        try:
            return self._value_and_gradient(x, start)
        except (ValueError, scipy.linalg.LinAlgError):  # numbers too large to compute with
            self._factors = None
            return np.nan, np.full_like(x, np.nan), np.full_like(np.asarray(start, np.float64), np.nan)

    def _value_and_gradient(self, x: np.ndarray, start: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        Y = self.solution(x, start)
        if not np.linalg.norm(self._inner(x, Y)[2]) <= EXACT_ENOUGH:
            return np.nan, np.full_like(x, np.nan), np.full_like(Y, np.nan)
        outer = self.outer.at(Y)
        scores = self.inner.at(Y)
        by_y = self.outer.features.T @ outer.residual / len(outer.losses)
        V = self._solve(x, scores, by_y, TOLERANCE)
        return float(outer.losses.mean()), -self.cross(x, Y, V, scores, self.inner.features @ V), Y

    def minimum(self, x0: np.ndarray, Y0: np.ndarray, evaluations: int, bound: float = 20.0) -> tuple[float, float]:
        """Return the lowest Phi that L-BFGS finds with |x_i| <= bound, and the norm of its gradient there."""
        last = [Y0]

        def fun(x):
            value, gradient, last[0] = self.value_and_gradient(x, last[0])
            return value, gradient

        options: Any = {"maxfun": evaluations, "maxiter": evaluations, "ftol": 0.0, "gtol": 1e-10, "maxcor": 20}
        bounds = [(-bound, bound)] * x0.size
        found = scipy.optimize.minimize(fun, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return float(found.fun), float(np.linalg.norm(found.jac))

    def _inner(self, x: np.ndarray, Y: np.ndarray) -> tuple[Scores, float, np.ndarray]:
        scores, w, p = self.inner.at(Y), self.weights(x), self.penalties(x)
        value = float(np.mean(w * scores.losses) + 0.5 * (p * Y**2).sum())
        return scores, value, self.inner.features.T @ (w[:, None] * scores.residual) / len(w) + p * Y

    def _solve(self, x: np.ndarray, scores: Scores, b: np.ndarray, tolerance: float) -> np.ndarray:
        """Return H^-1 b by conjugate gradients; with few unknowns, factors of an earlier Hessian make them short."""
        A, w, p = self.inner.features, self.weights(x), self.penalties(x)

        def product(V):
            return A.T @ (w[:, None] * scores.curved(A @ V)) / len(w) + p * V

        if b.size > DENSE:
            narrow, w_narrow = self.inner.narrow, (w / len(w))[:, None].astype(np.float32)

            def rough(V):
                V = V.astype(np.float32)
                return narrow.T @ (w_narrow * scores.curved(narrow @ V).astype(np.float32)) + p * V

            return _refined(product, rough, b, tolerance)

        def precondition(r):
            factors, scales = self._factors
            return (scales * scipy.linalg.cho_solve(factors, scales * r.ravel())).reshape(r.shape)

        if self._factors is not None:
            found, enough = _conjugate_gradients(product, precondition, b, tolerance, SLOW)
            if enough:
                return found
        H = scores.hessian(w) + np.diag(np.broadcast_to(p, b.shape).ravel())
        # Penalties may differ by many powers of ten, and H is of float32.
        scales = 1 / np.sqrt(H.diagonal())
        scaled = scales[:, None] * H * scales
        self._factors = scipy.linalg.cho_factor(scaled + 1e-6 * np.eye(len(H))), scales
        return _conjugate_gradients(product, precondition, b, tolerance)[0]


def _refined(product: Any, rough: Any, b: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the solution by rough products, in float32, whose errors are corrected by a few exact ones."""
    solution, r, goal = np.zeros_like(b), b, tolerance * np.linalg.norm(b)
    for _ in range(MOST_ROUNDS):
        size = np.linalg.norm(r)
        if size <= goal:
            break
        enough = max(ROUGH, min(0.1, float(goal / size)))
        solution = solution + size * _conjugate_gradients(rough, lambda one: one, r / size, enough)[0]
        if enough > ROUGH:  # so rough a solution needs no exact product
            break
        r = b - product(solution)
    return solution


def _conjugate_gradients(
    product: Any, precondition: Any, b: np.ndarray, tolerance: float, most: int = MOST_CG
) -> tuple[np.ndarray, bool]:
    """Return the solution after at most so many products, and whether it is one."""
    solution, r = np.zeros_like(b), b.copy()
    z = precondition(r)
    p, rz, goal = z, float((r * z).sum()), tolerance * np.linalg.norm(b)
    for _ in range(most):
        Hp = product(p)
        step = rz / float((p * Hp).sum())
        solution, r = solution + step * p, r - step * Hp
        if np.linalg.norm(r) <= goal:
            return solution, True
        z = precondition(r)
        rz, before = float((r * z).sum()), rz
        p = z + rz / before * p
    return solution, False
