"""SOBA, the stochastic bilevel algorithm (Dagréou, Ablin, Vaiter and Moreau, NeurIPS 2022)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import decay
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad.neumann import ratio
from bilax.hyperparameters import Eta, batch_size, hyperparameters, inner_step, nonnegative, outer_step, series_step
from bilax.numerics.tree import axpy, norm, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class SOBA:
    r"""One gradient step for y, for the linear system and for x, all from the same point and the same two batches.

    .. math::
        y_{k+1} &= y_k - \rho_k \nabla_y G(x_k, y_k; \zeta) \\
        v_{k+1} &= v_k - \rho^v_k (\nabla_y^2 G(x_k, y_k; \zeta) v_k - \nabla_y F(x_k, y_k; \xi)) \\
        x_{k+1} &= x_k - \gamma_k (\nabla_x F(x_k, y_k; \xi) - \nabla_x\nabla_y G(x_k, y_k; \zeta) v_k)

    with gamma_k = gamma / (k+1)^a, rho_k = rho / (k+1)^b, rho^v_k = rho_v / (k+1)^b and v_0 = 0. The paper's v has
    the opposite sign, and its rho_v equals rho.

    >>> SOBA(S=10).cost(k=0)
    Counts(F=10, G=10, JV=10, HV=10, HINV=0)
    """

    about = About(
        name="soba",
        loops="single",
        reduces="nothing",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "S"},
        draws={"F": "S", "G": "S"},
        complexity="eps^-2, if F and G are smooth enough",
        reference="Dagréou, Ablin, Vaiter, Moreau. A Framework for Bilevel Optimization that Enables Stochastic and "
        "Global Variance Reduction Algorithms. NeurIPS 2022",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"S": 1},
            grid={"gamma": (0.003, 0.01, 0.03, 0.1), "rho": (0.5, 1.0), "rho_v": (0.5, 1.0)},
            steps=30_000,
        ),
    )

    gamma: Step = outer_step(default=0.1)
    rho: Step = inner_step(default=0.1)
    rho_v: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    a: Scalar = nonnegative(default=0.5, doc="exponent of the outer step, gamma / (k+1)^a")
    b: Scalar = nonnegative(default=0.5, doc="exponent of the inner steps, rho / (k+1)^b")
    S: int = batch_size(default=64, doc="size of both batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(y0), start(self.gamma, x0), start(self.rho, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_G, key_F = jax.random.split(key)
        zeta, xi = oracle.draw_G(key_G, self.S), oracle.draw_F(key_F, self.S)
        D_y, Hv, Jv = oracle.linearize_G(s.x, s.y, zeta, s.v)
        F_x, F_y = oracle.grad_F(s.x, s.y, xi)
        F_y = oracle.tangent(s.x, s.y, zeta, F_y)
        D_v, D_x = axpy(-1, F_y, Hv), axpy(-1, Jv, F_x)
        y, y_memory = descend(self.rho, s.y_memory, D_y, s.y, oracle.project_y, decay(s.k, self.b))
        v, _ = descend(self.rho_v, (), D_v, s.v, schedule=decay(s.k, self.b))
        x, x_memory = descend(self.gamma, s.x_memory, D_x, s.x, oracle.project_x, decay(s.k, self.a))
        told = {"rho_v": self.rho_v, "residual": ratio(norm(D_v), norm(F_y))}
        return State(s.k + 1, x, y, v, x_memory, y_memory), info(D_x, D_y, **told)

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=self.S, JV=self.S, HV=self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)
