"""MSTSA, momentum-assisted single-timescale stochastic approximation (Khanduri et al., 2021)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import gauge, neumann, random_neumann
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
from bilax.inner import decay
from bilax.oracle import Counts, Oracle, both
from bilax.tree import axpy, storm, zeros_like
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    v: PyTree  # v_{k-1}, tracks the hypergradient
    momentum: jax.Array  # eta_k of the paper, the weight of the new estimate
    gauge: gauge.Gauge | None


@final
@hyperparameters
class MSTSA:
    r"""Plain SGD on y; recursive momentum on x, with a series of random length.

    .. math::
        y_{k+1} &= y_k - \beta_k \nabla_y G(x_k, y_k; \zeta_k) \\
        v_k &= h(x_k, y_{k+1}; \xi_k) + (1 - \eta_k)(v_{k-1} - h(x_{k-1}, y_k; \xi_k)) \\
        x_{k+1} &= x_k - \alpha_k v_k, \qquad \alpha_k = \alpha / \sqrt{1 + k/w}, \; \beta_k = \beta / \sqrt{1 + k/w},
        \; \eta_{k+1} = \min(1, c\, \alpha_k)
    """

    about = About(
        loops="single",
        reduces="x (STORM)",
        calls={"F": "2 * S", "G": "S", "JV": "2 * S", "HV": "Q * S"},
        random={"HV": "Q * S"},
        draws={"F": "S", "G": "(2 + Q / 2) * S"},
        complexity="eps^-2",
        reference="Khanduri, Zeng, Hong, Wai, Wang, Yang. A Momentum-Assisted Single-Timescale Stochastic "
        "Approximation Algorithm for Bilevel Optimization. arXiv:2102.07367v1, 2021",
    )

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    c: Scalar = nonnegative(default=1.0, doc="momentum, eta_{k+1} = min(1, c alpha_k)")
    w: Scalar = positive(default=1.0, doc="delay of the steps, alpha_k = alpha / sqrt(1 + k/w)")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        return State(k, x0, y0, x0, zeros_like(x0), one, gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x, key_L = jax.random.split(key, 3)
        alpha_k, beta_k = decay(self.alpha, s.k / self.w, 0.5), decay(self.beta, s.k / self.w, 0.5)
        u = oracle.grad_G(s.x, s.y, oracle.draw_G(key_y, self.S))
        y = oracle.project_y(axpy(-beta_k, u, s.y))
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, y, self.S)
        xi = random_neumann.draw(oracle, key_x, self.S, self.Q)
        h, h_prev = both(lambda x, y: random_neumann.hypergrad(oracle, x, y, xi, eta), (s.x, y), (s.x_prev, s.y))
        v = storm(s.v, s.momentum, h.value, h_prev.value)
        x = oracle.project_x(axpy(-alpha_k, v, s.x))
        h = neumann.worst(h, h_prev)
        momentum = jnp.minimum(self.c * alpha_k, 1).astype(float)
        state = State(s.k + 1, x, y, s.x, v, momentum, gauge.note(L, h.growth))
        return state, info_of(v, u, h, eta, L, 2 * random_neumann.spent(xi))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + 2 * random_neumann.cost(self.S)
