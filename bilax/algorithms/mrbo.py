"""MRBO, the Momentum-based Recursive Bilevel Optimizer (Yang, Ji and Liang, NeurIPS 2021, Algorithm 1)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import gauge, neumann
from bilax.hyperparameters import (
    Eta,
    batch_size,
    count,
    hyperparameters,
    inner_step,
    nonnegative,
    outer_step,
    positive,
    series_step,
)
from bilax.oracle import Counts, Oracle, both
from bilax.tree import axpy, storm, zeros_like
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    y_prev: PyTree  # y_{k-1}
    v: PyTree  # v_{k-1}, tracks the hypergradient
    u: PyTree  # u_{k-1}, tracks grad_y g
    alpha: jax.Array  # alpha_k
    beta: jax.Array  # beta_k
    gauge: gauge.Gauge | None


@final
@hyperparameters
class MRBO:
    r"""A single loop with recursive momentum (STORM) on both levels.

    .. math::
        v_k &= \hat\nabla\Phi(x_k, y_k; B_x) + (1 - \alpha_k)(v_{k-1} - \hat\nabla\Phi(x_{k-1}, y_{k-1}; B_x)) \\
        u_k &= \nabla_y G(x_k, y_k; B_y) + (1 - \beta_k)(u_{k-1} - \nabla_y G(x_{k-1}, y_{k-1}; B_y)) \\
        x_{k+1} &= x_k - \gamma \eta_k v_k, \qquad y_{k+1} = y_k - \lambda \eta_k u_k \\
        \eta_k &= d / (m + k)^{1/3}, \quad \alpha_{k+1} = c_1 \eta_k^2, \quad \beta_{k+1} = c_2 \eta_k^2

    alpha and beta are kept at most 1. Batches of size S; one iteration makes 2S calls of the gradients of F and
    G and of the Jacobian-vector product, and 2QS of the Hessian-vector product.

    >>> MRBO(gamma=0.5, S=10).cost(k=0)
    Counts(F=20, G=20, JV=20, HV=60, HINV=0)
    """

    about = About(
        loops="single",
        reduces="x and y (STORM)",
        calls={"F": "2 * S", "G": "2 * S", "JV": "2 * S", "HV": "2 * Q * S"},
        draws={"F": "S", "G": "(Q + 2) * S"},
        complexity="eps^-1.5",
        reference="Yang, Ji, Liang. Provably Faster Algorithms for Bilevel Optimization. NeurIPS 2021, Algorithm 1",
    )

    gamma: Scalar = outer_step(default=0.1)
    lam: Scalar = inner_step(default=0.1, doc="inner step size, lambda in the paper")
    c1: Scalar = nonnegative(default=1.0, doc="outer momentum, alpha_{k+1} = c1 eta_k^2")
    c2: Scalar = nonnegative(default=1.0, doc="inner momentum, beta_{k+1} = c2 eta_k^2")
    d: Scalar = positive(default=1.0, doc="scale of eta_k = d / (m + k)^(1/3)")
    m: Scalar = positive(default=8.0, doc="delay of eta_k = d / (m + k)^(1/3)")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        # alpha_0 = beta_0 = 1 turns lines 7-8 into line 5, so step needs no branch on k.
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        return State(k, x0, y0, x0, y0, zeros_like(x0), zeros_like(y0), one, one, gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x, key_L = jax.random.split(key, 3)
        B_y = oracle.draw_G(key_y, self.S)  # line 3
        B_x = neumann.draw(oracle, key_x, self.S, self.Q)
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, s.y, self.S)

        def estimates(x, y):
            return neumann.hypergrad(oracle, x, y, B_x, eta), oracle.grad_G(x, y, B_y)

        (Phi, G_y), (Phi_prev, G_y_prev) = both(estimates, (s.x, s.y), (s.x_prev, s.y_prev))
        v = storm(s.v, s.alpha, Phi.value, Phi_prev.value)  # lines 5, 7
        u = storm(s.u, s.beta, G_y, G_y_prev)  # lines 5, 8

        eta_k = self.d / (self.m + s.k) ** (1 / 3)  # line 10
        alpha, beta = (jnp.minimum(c * eta_k**2, 1).astype(float) for c in (self.c1, self.c2))
        x = oracle.project_x(axpy(-self.gamma * eta_k, v, s.x))  # line 11
        y = oracle.project_y(axpy(-self.lam * eta_k, u, s.y))

        Phi = neumann.worst(Phi, Phi_prev)
        state = State(s.k + 1, x, y, s.x, s.y, v, u, alpha, beta, gauge.note(L, Phi.growth))
        return state, info_of(v, u, Phi, eta, L)

    def cost(self, k: int) -> Counts:
        return 2 * (Counts(G=self.S) + neumann.cost(self.S, self.Q))
