"""MRBO, the Momentum-based Recursive Bilevel Optimizer (Yang, Ji and Liang, NeurIPS 2021, Algorithm 1)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import neumann
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
from bilax.numerics.tree import real, storm, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, at_two_points
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
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


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
        name="mrbo",
        loops="single",
        reduces="x and y (STORM)",
        calls={"F": "2 * S", "G": "2 * S", "JV": "2 * S", "HV": "2 * Q * S"},
        draws={"F": "S", "G": "(Q + 2) * S"},
        complexity="eps^-1.5",
        reference="Yang, Ji, Liang. Provably Faster Algorithms for Bilevel Optimization. NeurIPS 2021, Algorithm 1",
        scaling=Scaling(
            exponent=1.5,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1, "d": 1.0, "m": 8.0},
            grid={"gamma": (0.003, 0.01, 0.03, 0.1), "lam": (0.3, 1.0), "c1": (0.3, 3.0)},
            steps=30_000,
        ),
    )

    gamma: Step = outer_step(default=0.1)
    lam: Step = inner_step(default=0.1, doc="inner step size, lambda in the paper")
    c1: Scalar = nonnegative(default=1.0, doc="outer momentum, alpha_{k+1} = c1 eta_k^2")
    c2: Scalar = nonnegative(default=1.0, doc="inner momentum, beta_{k+1} = c2 eta_k^2")
    d: Scalar = positive(default=1.0, doc="scale of eta_k = d / (m + k)^(1/3)")
    m: Scalar = positive(default=8.0, doc="delay of eta_k = d / (m + k)^(1/3)")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        # alpha_0 = beta_0 = 1 turns lines 7-8 into line 5, so step needs no branch on k.
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        memories = start(self.gamma, x0), start(self.lam, y0)
        return State(k, x0, y0, x0, y0, zeros_like(x0), zeros_like(y0), one, one, *memories)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        B_y = oracle.draw_G(key_y, self.S)  # line 3
        B_x = neumann.draw(oracle, key_x, self.S, self.Q)

        def estimates(x, y):
            return neumann.hypergrad(oracle, x, y, B_x, self.eta), oracle.grad_G(x, y, B_y)

        (Phi, G_y), (Phi_prev, G_y_prev) = at_two_points(estimates, (s.x, s.y), (s.x_prev, s.y_prev))
        v = storm(s.v, s.alpha, Phi.value, Phi_prev.value)  # lines 5, 7
        u = storm(s.u, s.beta, G_y, G_y_prev)  # lines 5, 8

        eta_k = self.d / (self.m + real(s.k)) ** (1 / 3)  # line 10
        alpha, beta = (jnp.minimum(c * eta_k**2, 1).astype(float) for c in (self.c1, self.c2))
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x, eta_k)  # line 11
        y, y_memory = descend(self.lam, s.y_memory, u, s.y, oracle.project_y, eta_k)

        Phi = neumann.with_larger_residuals(Phi, Phi_prev)
        state = State(s.k + 1, x, y, s.x, s.y, v, u, alpha, beta, x_memory, y_memory)
        return state, info(v, u, **neumann.told(Phi, self.eta))

    def cost(self, k: int) -> Counts:
        return 2 * (Counts(G=self.S) + neumann.cost(self.S, self.Q))

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.Q + 2) * self.S)
