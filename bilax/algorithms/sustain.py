"""SUSTAIN, the single-timescale double-momentum stochastic approximation (Khanduri et al., NeurIPS 2021)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
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
    y_prev: PyTree  # y_{k-1}
    v: PyTree  # h^f_{k-1}, tracks the hypergradient
    u: PyTree  # h^g_{k-1}, tracks grad_y g
    eta_f: jax.Array  # momentum weights
    eta_g: jax.Array
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class SUSTAIN:
    r"""Recursive momentum on both levels with a series of random length: MRBO's recursions, single samples.

    .. math::
        h^g_k &= \nabla_y G(x_k, y_k; \zeta_k) + (1 - \eta^g_k)(h^g_{k-1} - \nabla_y G(x_{k-1}, y_{k-1}; \zeta_k)) \\
        h^f_k &= h(x_k, y_k; \xi_k) + (1 - \eta^f_k)(h^f_{k-1} - h(x_{k-1}, y_{k-1}; \xi_k)) \\
        y_{k+1} &= y_k - c_b \alpha_k h^g_k, \qquad x_{k+1} = x_k - \alpha_k h^f_k, \qquad
        \alpha_k = c / (w + k)^{1/3}, \; \eta^{f,g}_{k+1} = \min(1, c_{f,g} \alpha_k^2)

    >>> SUSTAIN(S=10).draws()
    Draws(F=10, G=35.0)
    """

    about = About(
        name="sustain",
        loops="single",
        reduces="x and y (STORM)",
        calls={"F": "2 * S", "G": "2 * S", "JV": "2 * S", "HV": "Q * S"},
        random={"HV": "Q * S"},
        draws={"F": "S", "G": "(2 + Q / 2) * S"},
        complexity="eps^-1.5",
        reference="Khanduri, Zeng, Hong, Wai, Wang, Yang. A Near-Optimal Algorithm for Stochastic Bilevel "
        "Optimization via Double-Momentum. NeurIPS 2021",
        scaling=Scaling(
            exponent=1.5,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1, "w": 8.0},
            grid={"c": (0.01, 0.03, 0.1, 0.3), "c_b": (10.0, 30.0), "c_f": (30.0, 300.0)},
            steps=70_000,
        ),
    )

    c: Step = outer_step(default=0.1)
    c_b: Step = inner_step(default=1.0, doc="inner step size relative to the outer one")
    c_f: Scalar = nonnegative(default=100.0, doc="outer momentum, eta^f_{k+1} = min(1, c_f alpha_k^2)")
    c_g: Scalar = nonnegative(default=100.0, doc="inner momentum, eta^g_{k+1} = min(1, c_g alpha_k^2)")
    w: Scalar = positive(default=8.0, doc="delay of alpha_k = c / (w + k)^(1/3)")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        memories = start(self.c, x0), start(self.c_b, y0)
        return State(k, x0, y0, x0, y0, zeros_like(x0), zeros_like(y0), one, one, *memories)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        zeta, xi = oracle.draw_G(key_y, self.S), random_neumann.draw(oracle, key_x, self.S, self.Q)

        def estimates(x, y):
            return random_neumann.hypergrad(oracle, x, y, xi, self.eta), oracle.grad_G(x, y, zeta)

        (h, G_y), (h_prev, G_y_prev) = at_two_points(estimates, (s.x, s.y), (s.x_prev, s.y_prev))
        v = storm(s.v, s.eta_f, h.value, h_prev.value)
        u = storm(s.u, s.eta_g, G_y, G_y_prev)
        schedule = 1 / (self.w + real(s.k)) ** (1 / 3)
        alpha_k = size_of(self.c, "for its momentum and, relative to it, for y") * schedule
        eta_f, eta_g = (jnp.minimum(c * alpha_k**2, 1).astype(float) for c in (self.c_f, self.c_g))
        x, x_memory = descend(self.c, s.x_memory, v, s.x, oracle.project_x, schedule)
        y, y_memory = descend(self.c_b, s.y_memory, u, s.y, oracle.project_y, alpha_k)
        h = neumann.with_larger_residuals(h, h_prev)
        state = State(s.k + 1, x, y, s.x, s.y, v, u, eta_f, eta_g, x_memory, y_memory)
        return state, info(v, u, Counts(HV=2 * random_neumann.spent(xi)), **neumann.told(h, self.eta))

    def cost(self, k: int) -> Counts:
        return 2 * (Counts(G=self.S) + random_neumann.cost(self.S))

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(2 + self.Q / 2) * self.S)
