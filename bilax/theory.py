"""The paper's theory in code: its constants, the conditions of its theorems, and settings that satisfy them.

The symbols are the paper's. Where its statements have a slip, the right form is used (docs/decisions, no. 6).
"""

import math
from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax.algorithms import MRBO, VRBO
from bilax.given import as_variable
from bilax.hypergrad.auto_eta import largest_eigenvalue
from bilax.hyperparameters import Auto
from bilax.numerics.tree import axpy, norm, normal_like, scale
from bilax.optimisers import Optimiser
from bilax.oracle import make_oracle
from bilax.problem import Problem
from bilax.sampling import keys
from bilax.types import PyTree

__all__ = ["Condition", "Constants", "Derived", "derived", "estimate", "explain", "theorem1", "theorem2"]


class Constants(NamedTuple):
    """Constants of a problem; those that exist only on bounded sets hold where |(x, y)| <= radius.

    Attributes:
      L: Lipschitz constant of the gradients of F and G, for every sample.
      mu: strong convexity of G in y, for every sample.
      M: bound of the gradient of F, for every sample.
      tau: Lipschitz constant of the mixed Jacobian of G.
      rho: Lipschitz constant of the Hessian of G by y.
      sigma: standard deviation of the gradient of G.
      radius: of the ball.
    """

    L: float
    mu: float
    M: float
    tau: float
    rho: float
    sigma: float
    radius: float


class Derived(NamedTuple):
    """The constants that the propositions use, for a series of Q + 1 terms with step eta.

    Attributes:
      L_Phi: Lipschitz constant of the gradient of Phi.
      L_Q: Lipschitz constant of the estimator, on the same batches.
      L_prime: error of the hypergradient per error of y.
      C_Q: bias of the estimator.
      sigma_prime: standard deviation of one chain of equation 5.
    """

    L_Phi: float
    L_Q: float
    L_prime: float
    C_Q: float
    sigma_prime: float

    def G2(self, c: Constants, Q: int, eta: float, S: int) -> float:
        """The bound G^2 on the variance of equation 4 with batches of size S (Proposition 1)."""
        a = c.M**2 * c.L**2 * (Q + 1) ** 2
        # The last term has the variance of the Hessian, at most L^2, where the paper writes sigma^2.
        return (2 * c.M**2 + 12 * a * eta**2 + 4 * a * (Q + 2) * eta**4 * c.L**2) / S


def _checked(c: Constants) -> Constants:
    """Refuse constants that no problem has."""
    if not isinstance(c, Constants):
        raise TypeError(f"the constants must be a bilax.theory.Constants; got {type(c).__name__}.")
    allowed = {"mu": "> 0 and at most L", "L": "> 0"}
    for name, value in c._asdict().items():
        least = name in allowed
        if not _is_number(value) or value < 0 or (least and value == 0) or (name == "mu" and value > c.L):
            rule = allowed.get(name, ">= 0")
            raise ValueError(
                f"{name} (of theory.Constants) must be a finite number {rule}; got {name} = {value!r}, L = {c.L!r}. "
                "An inner loss that is not strongly convex has no mu > 0: add a regularisation."
            )
    return c


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)


def derived(c: Constants, Q: int, eta: float) -> Derived:
    """Compute the constants of Propositions 1 to 4.

    Args:
      c: the constants of the problem.
      Q: Hessian-vector products per hypergradient.
      eta: the step of the series.

    >>> c = Constants(L=1.0, mu=0.5, M=2.0, tau=0.0, rho=0.0, sigma=1.0, radius=1.0)
    >>> derived(c, Q=1, eta=0.5).C_Q
    2.25
    """
    if not isinstance(Q, (int, np.integer)) or Q < 1:
        raise ValueError(f"Q (Hessian-vector products) must be an integer >= 1; got {Q!r}.")
    if not _is_number(eta) or eta <= 0:
        raise ValueError(f"eta must be a finite number > 0; got {eta!r}.")
    L, mu, M, tau, rho = (getattr(_checked(c), name) for name in ("L", "mu", "M", "tau", "rho"))
    L_Phi = L + (2 * L**2 + tau * M**2) / mu + (rho * L * M + L**3 + tau * M * L) / mu**2 + rho * L**2 * M / mu**3
    L_Q2 = (
        2 * L**2
        + 4 * tau**2 * eta**2 * M**2 * (Q + 1) ** 2
        + 8 * L**4 * eta**2 * (Q + 1) ** 2
        + 2 * L**2 * eta**4 * M**2 * rho**2 * Q**2 * (Q + 1) ** 2
    )
    tracking = L + L**2 / mu + M * tau / mu + L * M * rho / mu**2
    return Derived(
        L_Phi=L_Phi,
        L_Q=math.sqrt(L_Q2),
        L_prime=max(tracking, math.sqrt(L_Q2)),
        C_Q=(1 - eta * mu) ** (Q + 1) * M * L / mu,
        sigma_prime=math.sqrt(2 * M**2 + 28 * L**2 * M**2 * eta**2 * (Q + 1) ** 2),
    )


class Condition(NamedTuple):
    """One condition of a theorem, with both sides as numbers.

    Attributes:
      statement: the condition, as the theorem writes it.
      value: its left side.
      bound: its right side.
      holds: whether it is fulfilled.
    """

    statement: str
    value: float
    bound: float
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS':6}{self.statement:58}{self.value:.4g} against {self.bound:.4g}"


def explain(algorithm: MRBO | VRBO, c: Constants) -> list[Condition]:
    """List each condition of the algorithm's theorem with its value, its bound, and whether it holds.

    Args:
      algorithm: a setting of MRBO (Theorem 1) or VRBO (Theorem 2).
      c: the constants of the problem.

    >>> from bilax.problems import quadratic
    >>> first = explain(MRBO(eta=0.01), quadratic().constants())[0]
    >>> first.statement, first.value, first.holds
    ('eta < 1/L', 0.01, True)
    """
    if isinstance(algorithm, type):
        raise TypeError(f"explain needs an instance: write {algorithm.__name__}() with its hyper-parameters.")
    if not isinstance(algorithm, (MRBO, VRBO)):
        raise TypeError(f"the paper proves theorems for MRBO and VRBO; got {type(algorithm).__name__}.")
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, Optimiser):
            raise TypeError(
                f"{type(algorithm).__name__}: {field.name} must be a number here; the theorem says nothing about an "
                "optimiser."
            )
        if np.ndim(value) != 0 and not isinstance(value, Auto):
            raise ValueError(
                f"{type(algorithm).__name__}: {field.name} has the shape {np.shape(value)}; explain takes one setting "
                "at a time."
            )
    c = _checked(c)
    eta = algorithm.eta.fraction / c.L if isinstance(algorithm.eta, Auto) else float(algorithm.eta)  # type: ignore[arg-type]
    d = derived(c, algorithm.Q, eta)
    if isinstance(algorithm, MRBO):
        return _theorem1_conditions(algorithm, c, d, eta)
    return _theorem2_conditions(algorithm, c, d, eta)


def _theorem1_conditions(a: MRBO, c: Constants, d: Derived, eta: float) -> list[Condition]:
    gamma, lam, c1, c2, dd, m = (float(value) for value in (a.gamma, a.lam, a.c1, a.c2, a.d, a.m))
    eta_0 = dd / m ** (1 / 3)
    coupling = lam * c.mu / math.sqrt(150 * d.L_prime**2 * c.L**2 / c.mu**2 + 8 * lam * c.mu * (d.L_Q**2 + c.L**2))
    return [
        _below("eta < 1/L", eta, 1 / c.L, strict=True),
        _below("lambda <= 1/(6L)", lam, 1 / (6 * c.L)),
        _above("c1 >= 2/(3d^3) + 9 lambda mu/4", c1, 2 / (3 * dd**3) + 9 * lam * c.mu / 4),
        _above("c2 >= 2/(3d^3) + 75 L'^2 lambda/(2 mu)", c2, 2 / (3 * dd**3) + 75 * d.L_prime**2 * lam / (2 * c.mu)),
        _above("m >= max{2, d^3, (c1 d)^3, (c2 d)^3}", m, max(2, dd**3, (c1 * dd) ** 3, (c2 * dd) ** 3)),
        _below("gamma <= 1/(4 L_Phi eta_0)", gamma, 1 / (4 * d.L_Phi * eta_0)),
        _below("gamma <= lambda mu/sqrt(150 L'^2 L^2/mu^2 + 8 lambda mu (L_Q^2 + L^2))", gamma, coupling),
    ]


def _theorem2_conditions(a: VRBO, c: Constants, d: Derived, eta: float) -> list[Condition]:
    alpha, beta = float(a.alpha), float(a.beta)
    L_m = max(d.L_Q, d.L_Phi)
    return [
        _below("eta < 1/L", eta, 1 / c.L, strict=True),
        _below("alpha <= 1/(20 L_m^3)", alpha, 1 / (20 * L_m**3)),
        _below("beta <= 2/(13 L_Q)", beta, 2 / (13 * d.L_Q)),
        _above("S2 >= 2 (L/mu + 1) L beta", a.S2, 2 * (c.L / c.mu + 1) * c.L * beta),
        _above("m >= 16/(mu beta) - 1", a.m, 16 / (c.mu * beta) - 1 if beta > 0 else math.inf),
        _below("q <= max(1, mu L beta S2/(mu + L))", a.q, max(1.0, c.mu * c.L * beta * a.S2 / (c.mu + c.L))),
    ]


def theorem1(c: Constants, eps: float, *, S: int = 1, d: float = 1.0) -> tuple[MRBO, int]:
    """Return MRBO with the settings of Theorem 1 for the target eps, and the iterations of its Corollary, eps^-1.5.

    The constants in front of the rates are those of the theorem; they are very conservative.

    Args:
      c: the constants of the problem.
      eps: the target of the squared norm of the gradient of Phi.
      S: size of every batch.
      d: scale of eta_k.

    >>> from bilax.problems import quadratic
    >>> c = quadratic().constants()
    >>> algorithm, steps = theorem1(c, eps=0.1)
    >>> steps, all(condition.holds for condition in explain(algorithm, c))
    (32, True)
    """
    if not _is_number(d) or d <= 0:
        raise ValueError(f"d (scale of eta_k) must be a finite number > 0; got {d!r}.")
    eta = 0.9 / _checked(c).L
    Q = _terms(c, eps, eta)
    own = derived(c, Q, eta)
    lam = 1 / (6 * c.L)
    c1 = 2 / (3 * d**3) + 9 * lam * c.mu / 4
    c2 = 2 / (3 * d**3) + 75 * own.L_prime**2 * lam / (2 * c.mu)
    m = max(2.0, d**3, (c1 * d) ** 3, (c2 * d) ** 3)
    shell = MRBO(gamma=0.0, lam=lam, c1=c1, c2=c2, d=d, m=m, Q=Q, eta=eta, S=S)
    gamma = min(condition.bound for condition in _theorem1_conditions(shell, c, own, eta)[-2:])
    return replace(shell, gamma=gamma), math.ceil(_eps(eps) ** -1.5)


def theorem2(c: Constants, eps: float) -> tuple[VRBO, int]:
    """Return VRBO with the settings of Theorem 2 for the target eps, and the iterations of its Corollary, 1/eps.

    Args:
      c: the constants of the problem.
      eps: the target of the squared norm of the gradient of Phi.

    >>> from bilax.problems import quadratic
    >>> c = quadratic().constants()
    >>> algorithm, steps = theorem2(c, eps=0.1)
    >>> steps, all(condition.holds for condition in explain(algorithm, c))
    (10, True)
    """
    eta = 0.9 / _checked(c).L
    Q = _terms(c, eps, eta)
    own = derived(c, Q, eta)
    beta = 2 / (13 * own.L_Q)
    S2 = max(math.ceil(_eps(eps) ** -0.5), math.ceil(2 * (c.L / c.mu + 1) * c.L * beta))
    algorithm = VRBO(
        alpha=1 / (20 * max(own.L_Q, own.L_Phi) ** 3),
        beta=beta,
        m=math.ceil(16 / (c.mu * beta) - 1),
        q=max(1, math.floor(c.mu * c.L * beta * S2 / (c.mu + c.L))),
        Q=Q,
        eta=eta,
        S1=math.ceil(1 / eps),
        S2=S2,
        per_sample=True,
    )
    return algorithm, math.ceil(1 / eps)


def _terms(c: Constants, eps: float, eta: float) -> int:
    """The smallest Q with a bias C_Q^2 <= eps."""
    return max(1, math.ceil(math.log(c.M * c.L / (c.mu * math.sqrt(_eps(eps)))) / -math.log(1 - eta * c.mu)) - 1)


def _eps(eps: float) -> float:
    if not _is_number(eps) or eps <= 0:
        raise ValueError(f"eps, the target of |grad Phi|^2, must be a finite number > 0; got {eps!r}.")
    return eps


def _below(statement: str, value: float, bound: float, strict: bool = False) -> Condition:
    return Condition(statement, value, bound, value < bound if strict else value <= bound * (1 + 1e-12))


def _above(statement: str, value: float, bound: float) -> Condition:
    return Condition(statement, value, bound, value >= bound * (1 - 1e-12))


def estimate(
    problem: Problem, x: PyTree, y: PyTree, *, radius: float = 1.0, samples: int = 256, seed: int = 0
) -> Constants:
    """Estimate the constants around (x, y) from products with vectors, without forming a matrix.

    L and mu are the extreme eigenvalues of the mean inner Hessian, by power iteration, so the theory's L (of every
    sample, and of x and y together) can be larger and its mu smaller. M is the largest gradient of F, and sigma the
    deviation of the gradients of G, over ``samples`` samples. tau and rho are the largest changes of the products
    seen between (x, y) and random points at distance ``radius``: lower bounds.

    Args:
      problem: whose constants.
      x: around where.
      y: around where.
      radius: how far from there tau and rho are measured.
      samples: how many samples are looked at.
      seed: decides the samples and the points.

    >>> from bilax.problems import quadratic
    >>> q = quadratic(mu=0.5, L=1.0)
    >>> found = estimate(q.problem, q.problem.x0, q.problem.y0)
    >>> abs(found.L - 1) < 0.1, abs(found.mu - 0.5) < 0.1
    (True, True)
    """
    if not _is_number(radius) or radius <= 0:
        raise ValueError(f"radius must be a finite number > 0; got {radius!r}.")
    if not isinstance(samples, (int, np.integer)) or isinstance(samples, bool) or samples < 1:
        raise ValueError(f"samples must be an integer >= 1; got {samples!r}.")
    x, y = as_variable("x", x), as_variable("y", y)
    full, single = make_oracle(problem, "full"), make_oracle(problem)
    key_L, key_M, key_G, key_z = jax.random.split(keys.root(keys.checked_seed(seed)), 4)

    @jax.jit
    def measure(x, y):
        L, _ = largest_eigenvalue(full, key_L, x, y, 1, iterations=200)
        batch = full.draw_G(key_L, 1)
        shifted = full._replace(hvp_G=lambda x, y, b, r: axpy(-1, full.hvp_G(x, y, b, r), scale(L, r)))
        mu = L - largest_eigenvalue(shifted, key_L, x, y, 1, iterations=200)[0]
        F = jax.vmap(lambda k: norm(single.grad_F(x, y, single.draw_F(k, 1))))(jax.random.split(key_M, samples))
        mean = full.grad_G(x, y, batch)
        G = jax.vmap(lambda k: norm(axpy(-1, mean, single.grad_G(x, y, single.draw_G(k, 1)))))(
            jax.random.split(key_G, samples)
        )

        def changes(key):
            key_x, key_y, key_r = jax.random.split(key, 3)
            dx, dy, r = normal_like(key_x, x), normal_like(key_y, y), normal_like(key_r, y)
            size = radius / jnp.sqrt(norm(dx) ** 2 + norm(dy) ** 2)
            there = axpy(size, dx, x), axpy(size, dy, y)
            unit = scale(1 / norm(r), r)
            tau, rho = (
                norm(axpy(-1, product(x, y, batch, unit), product(*there, batch, unit))) / radius
                for product in (full.jvp_G, full.hvp_G)
            )
            return tau, rho

        tau, rho = jax.vmap(changes)(jax.random.split(key_z, 16))
        return L, mu, F.max(), tau.max(), rho.max(), jnp.sqrt(jnp.mean(G**2))

    return Constants(*(float(np.asarray(value)) for value in measure(x, y)), radius=radius)
