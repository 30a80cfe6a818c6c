"""FSLA, fully single-loop (Li, Gu and Huang, AAAI 2022)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import decay
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import Eta, batch_size, hyperparameters, inner_step, outer_step, series_step, weight
from bilax.numerics.tree import axpy, storm, where, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    x_prev: PyTree  # x_{k-1}
    h: PyTree  # h_{k-1}, which tracks the hypergradient
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class FSLA:
    r"""One step on y, then on the linear system, then on x along a recursive momentum, each on batches of its own.

    .. math::
        y_{k+1} &= y_k - \rho_k \nabla_y G(x_k, y_k; B_1) \\
        v_{k+1} &= v_k - \rho^v_k (\nabla_y^2 G(x_k, y_{k+1}; B_2) v_k - \nabla_y F(x_k, y_{k+1}; B_3)) \\
        h_k &= D(x_k, y_{k+1}, v_{k+1}; B_4, B_5) + (1 - \theta_k) (h_{k-1} - D(x_{k-1}, y_k, v_k; B_4, B_5)) \\
        x_{k+1} &= x_k - \gamma_k h_k

    with D = grad_x F - grad_x grad_y G v; all steps and theta fall as 1 / sqrt(k+1). The first h is D itself.

    >>> FSLA(S=10).cost(k=0)
    Counts(F=30, G=10, JV=20, HV=10, HINV=0)
    """

    about = About(
        name="fsla",
        loops="single",
        reduces="x (STORM)",
        calls={"F": "3 * S", "G": "S", "JV": "2 * S", "HV": "S"},
        draws={"F": "2 * S", "G": "3 * S"},
        complexity="eps^-2",
        reference="Li, Gu, Huang. A Fully Single Loop Algorithm for Bilevel Optimization without Hessian Inverse. "
        "AAAI 2022",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"S": 1, "rho_v": 0.5},
            grid={"gamma": (0.003, 0.01, 0.03, 0.1), "rho": (0.3, 1.0), "theta": (0.3, 1.0)},
            steps=40_000,
        ),
    )

    gamma: Step = outer_step(default=0.1)
    rho: Step = inner_step(default=0.1)
    rho_v: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    theta: Scalar = weight(default=0.5, doc="weight of the newest direction of x, theta / sqrt(k+1)")
    S: int = batch_size(default=64, doc="size of all batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k, v0, h = jnp.zeros((), jnp.int32), zeros_like(y0), zeros_like(x0)
        return State(k, x0, y0, v0, x0, h, start(self.gamma, x0), start(self.rho, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        keys_of = jax.random.split(key, 5)
        B_1, B_2, B_4 = (oracle.draw_G(keys_of[i], self.S) for i in (0, 1, 3))
        B_3, B_5 = (oracle.draw_F(keys_of[i], self.S) for i in (2, 4))
        falling = decay(s.k, 0.5)

        u = oracle.grad_G(s.x, s.y, B_1)
        y, y_memory = descend(self.rho, s.y_memory, u, s.y, oracle.project_y, falling)
        F_y = oracle.tangent(s.x, y, B_2, oracle.grad_F(s.x, y, B_3)[1])
        D_v = axpy(-1, F_y, oracle.hvp_G(s.x, y, B_2, s.v))
        v, _ = descend(self.rho_v, (), D_v, s.v, schedule=falling)

        def D(x: PyTree, y: PyTree, v: PyTree) -> PyTree:
            return axpy(-1, oracle.jvp_G(x, y, B_4, v), oracle.grad_F(x, y, B_5)[0])

        new, old = at_two_points(D, (s.x, y, v), (s.x_prev, s.y, s.v))
        h = where(s.k == 0, new, storm(s.h, self.theta * falling, new, old))
        x, x_memory = descend(self.gamma, s.x_memory, h, s.x, oracle.project_x, falling)
        return State(s.k + 1, x, y, v, s.x, h, x_memory, y_memory), info(h, u, rho_v=self.rho_v)

    def cost(self, k: int) -> Counts:
        return Counts(F=3 * self.S, G=self.S, JV=2 * self.S, HV=self.S)

    def draws(self) -> Draws:
        return Draws(F=2 * self.S, G=3 * self.S)
