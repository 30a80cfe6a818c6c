"""MSTSA, momentum-assisted single-timescale stochastic approximation (Khanduri et al., 2021)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import decay
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import neumann, random_neumann
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
from bilax.optimisers import Step, descend, size_of, start
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    v: PyTree  # v_{k-1}, tracks the hypergradient
    momentum: jax.Array  # eta_k of the paper, the weight of the new estimate
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class MSTSA:
    r"""Plain SGD on y; recursive momentum on x, with a series of random length.

    .. math::
        y_{k+1} &= y_k - \beta_k \nabla_y G(x_k, y_k; \zeta_k) \\
        v_k &= h(x_k, y_{k+1}; \xi_k) + (1 - \eta_k)(v_{k-1} - h(x_{k-1}, y_k; \xi_k)) \\
        x_{k+1} &= x_k - \alpha_k v_k, \qquad \alpha_k = \alpha / \sqrt{1 + k/w}, \; \beta_k = \beta / \sqrt{1 + k/w},
        \; \eta_{k+1} = \min(1, c\, \alpha_k)

    >>> MSTSA(S=10).draws()
    Draws(F=10, G=35.0)
    """

    about = About(
        name="mstsa",
        loops="single",
        reduces="x (STORM)",
        calls={"F": "2 * S", "G": "S", "JV": "2 * S", "HV": "Q * S"},
        random={"HV": "Q * S"},
        draws={"F": "S", "G": "(2 + Q / 2) * S"},
        complexity="eps^-2",
        reference="Khanduri, Zeng, Hong, Wai, Wang, Yang. A Momentum-Assisted Single-Timescale Stochastic "
        "Approximation Algorithm for Bilevel Optimization. arXiv:2102.07367v1, 2021",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1},
            grid={"alpha": (0.01, 0.03, 0.1, 0.3), "beta": (0.5, 1.0), "c": (3.0, 30.0)},
            steps=40_000,
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    c: Scalar = nonnegative(default=1.0, doc="momentum, eta_{k+1} = min(1, c alpha_k)")
    w: Scalar = positive(default=1.0, doc="delay of the steps, alpha_k = alpha / sqrt(1 + k/w)")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        return State(k, x0, y0, x0, zeros_like(x0), one, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        schedule = decay(real(s.k) / self.w, 0.5)
        u = oracle.grad_G(s.x, s.y, oracle.draw_G(key_y, self.S))
        y, y_memory = descend(self.beta, s.y_memory, u, s.y, oracle.project_y, schedule)
        xi = random_neumann.draw(oracle, key_x, self.S, self.Q)

        def hypergrad(x, y):
            return random_neumann.hypergrad(oracle, x, y, xi, self.eta)

        h, h_prev = at_two_points(hypergrad, (s.x, y), (s.x_prev, s.y))
        v = storm(s.v, s.momentum, h.value, h_prev.value)
        x, x_memory = descend(self.alpha, s.x_memory, v, s.x, oracle.project_x, schedule)
        h = neumann.with_larger_residuals(h, h_prev)
        alpha_k = size_of(self.alpha, "for the weight of its momentum, c alpha_k") * schedule
        momentum = jnp.minimum(self.c * alpha_k, 1).astype(float)
        state = State(s.k + 1, x, y, s.x, v, momentum, x_memory, y_memory)
        return state, info(v, u, Counts(HV=2 * random_neumann.spent(xi)), **neumann.told(h, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + 2 * random_neumann.cost(self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(2 + self.Q / 2) * self.S)
