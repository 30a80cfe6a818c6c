"""A noisy quadratic whose solution, hypergradient and constants are known: the problem every test can trust."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from bilax.problem import Problem
from bilax.theory import Constants


@dataclass(frozen=True, eq=False)
class Quadratic:
    r"""Per-sample quadratics, averaged:

    .. math::
        G(x, y; i) &= \tfrac12 y^\top A_i y - y^\top C_i x - b_i^\top y, \quad A_i = A + s_i B, \; C_i = C + t_i E \\
        F(x, y; i) &= \tfrac12 \|y - \theta_i\|^2 + \tfrac\delta2 \|x\|^2 + c_i^\top x

    Every A_i is positive definite. The Hessian and the Jacobian are noisy, so it matters that the factors of a
    Neumann series use independent batches. `quadratic` makes one.

    Attributes:
      A: the mean inner Hessian, before noise.
      B: what differs between the samples' inner Hessians.
      C: the mean mixed Jacobian, before noise.
      E: what differs between the samples' Jacobians.
      delta: the outer penalty.
      inner: the inner data: s and t of shape (n,), b of shape (n, q).
      outer: the outer data: theta of shape (n, q), c of shape (n, p).
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    E: np.ndarray
    delta: float
    inner: dict[str, np.ndarray]
    outer: dict[str, np.ndarray]

    @cached_property
    def problem(self) -> Problem:
        """The `bilax.Problem`; its metrics are Phi, the squared norm of its gradient, and how far y is from y*(x)."""
        with jax.ensure_compile_time_eval():  # no tracers: the result is cached, even if a jitted function asks first
            A, B, C, E = (jnp.asarray(matrix) for matrix in (self.A, self.B, self.C, self.E))
        delta = self.delta

        def inner_loss(x, y, batch):
            s, t = batch["s"].mean(), batch["t"].mean()
            return 0.5 * y @ (A + s * B) @ y - y @ (C + t * E) @ x - batch["b"].mean(0) @ y

        def outer_loss(x, y, batch):
            fit = 0.5 * jnp.sum((y - batch["theta"]) ** 2, axis=-1).mean()
            return fit + 0.5 * delta * x @ x + batch["c"].mean(0) @ x

        def metrics(x, y):
            x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # a divergent run is measured too
                gradient = self.gradient(x)
                return {
                    "Phi": self.Phi(x),
                    "grad_norm2": float(gradient @ gradient),
                    "inner_gap": float(np.linalg.norm(y - self.y_star(x))),
                }

        p, q = self.C.shape[1], self.C.shape[0]
        return Problem(outer_loss, inner_loss, self.outer, self.inner, np.ones(p), np.zeros(q), metrics)

    @cached_property
    def _mean(self) -> dict[str, np.ndarray]:
        inner, outer = self.inner, self.outer
        return {
            "A": self.A + inner["s"].mean() * self.B,
            "C": self.C + inner["t"].mean() * self.E,
            "b": inner["b"].mean(0),
            "theta": outer["theta"].mean(0),
            "c": outer["c"].mean(0),
        }

    def y_star(self, x: np.ndarray) -> np.ndarray:
        """The inner solution."""
        return np.linalg.solve(self._mean["A"], self._mean["C"] @ x + self._mean["b"])

    def Phi(self, x: np.ndarray) -> float:
        """The outer objective f(x, y*(x))."""
        y = self.y_star(x)
        fit = 0.5 * np.sum((y - self.outer["theta"]) ** 2, axis=-1).mean()
        return float(fit + 0.5 * self.delta * x @ x + self._mean["c"] @ x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The hypergradient, the gradient of Phi."""
        w = np.linalg.solve(self._mean["A"], self.y_star(x) - self._mean["theta"])
        return self.delta * x + self._mean["c"] + self._mean["C"].T @ w

    @cached_property
    def x_star(self) -> np.ndarray:
        """The minimiser of Phi, which is a strongly convex quadratic here."""
        p = self.C.shape[1]
        at_0 = self.gradient(np.zeros(p))
        hessian = np.stack([self.gradient(unit) - at_0 for unit in np.eye(p)], axis=1)
        return np.linalg.solve(hessian, -at_0)

    def constants(self, radius: float = 10.0) -> Constants:
        """The constants of the theory, with M and sigma on a ball, because a quadratic has none on the whole space."""
        s, t, b = (self.inner[name] for name in ("s", "t", "b"))
        A = self.A + s[:, None, None] * self.B
        C = self.C + t[:, None, None] * self.E
        eigenvalues = np.linalg.eigvalsh(A)
        zero = np.zeros((len(s), C.shape[2], C.shape[2]))
        hessian_G = np.block([[zero, -C.transpose(0, 2, 1)], [-C, A]])
        L = max(np.abs(np.linalg.eigvalsh(hessian_G)).max(), self.delta, 1.0)
        size_x, size_y = (np.linalg.norm(self.outer[name], axis=1) for name in ("c", "theta"))
        M = np.sqrt((self.delta * radius + size_x) ** 2 + (radius + size_y) ** 2).max()
        # grad G(z; i) - grad g(z) = N_i (z, 1), so its mean square is a quadratic form in (z, 1).
        noise = hessian_G - hessian_G.mean(0)
        shift = np.concatenate([np.zeros((len(s), C.shape[2])), -(b - b.mean(0))], axis=1)
        form = np.einsum("nji,njk->ik", noise, noise) / len(s)
        linear = np.einsum("nji,nj->i", noise, shift) / len(s)
        variance = (
            np.linalg.eigvalsh(form)[-1] * radius**2 + 2 * np.linalg.norm(linear) * radius + (shift**2).sum(1).mean()
        )
        return Constants(float(L), float(eigenvalues.min()), float(M), 0.0, 0.0, float(np.sqrt(variance)), radius)


def quadratic(
    p: int = 3,
    q: int = 4,
    *,
    inner_size: int = 512,
    outer_size: int = 384,
    noise: float = 0.3,
    mu: float = 0.5,
    L: float = 1.0,
    delta: float = 0.1,
    seed: int = 0,
) -> Quadratic:
    """Return a random quadratic: x in R^p, y in R^q, spectrum of the mean inner Hessian in [mu, L].

    Args:
      p: the dimension of x.
      q: the dimension of y.
      inner_size: the number of inner samples.
      outer_size: the number of outer samples.
      noise: scales the differences between samples; the inner Hessian of every single one stays at least mu / 2.
      mu: the smallest eigenvalue.
      L: the largest eigenvalue.
      delta: the outer penalty.
      seed: decides all of it.

    Returns:
      A `Quadratic`: its ``problem``, and its solution in closed form.

    >>> q = quadratic()
    >>> bool(abs(q.gradient(q.x_star)).max() < 1e-12)
    True
    """
    for name, value in (("p", p), ("q", q), ("inner_size", inner_size), ("outer_size", outer_size)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1; got {value!r}.")
    if not 0 < mu <= L:
        raise ValueError(f"mu must be a number > 0 and at most L; got mu = {mu!r}, L = {L!r}.")
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(q, q)))[0]
    A = (basis * np.linspace(mu, L, q)) @ basis.T
    B = rng.normal(size=(q, q))
    B = B + B.T
    B *= min(noise, 1.0) * 0.5 * mu / np.linalg.norm(B, 2)
    C = rng.normal(size=(q, p)) / np.sqrt(p)
    E = noise * rng.normal(size=(q, p)) / np.sqrt(p)

    def centred(*shape: int) -> np.ndarray:
        values = rng.normal(size=shape)
        return noise * (values - values.mean(0))

    s = rng.uniform(-1, 1, size=inner_size)
    s = (s - s.mean()) / np.abs(s - s.mean()).max()
    t = rng.uniform(-1, 1, size=inner_size)
    inner = {"s": s, "t": t - t.mean(), "b": centred(inner_size, q)}
    outer = {"theta": rng.normal(size=q) + centred(outer_size, q), "c": centred(outer_size, p)}
    return Quadratic(A, B, C, E, delta, inner, outer)
