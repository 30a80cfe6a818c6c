"""SEMA, stochastic estimators with moving averages (Guo, Xu, Yin, Jin and Yang, 2021)."""

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
    outer_step,
    series_step,
    weight,
)
from bilax.oracle import Counts, Oracle
from bilax.tree import axpy, lerp, zeros_like
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_{k-1}
    u: PyTree  # u_{k-1}
    gauge: gauge.Gauge | None


@final
@hyperparameters
class SEMA:
    r"""Moving averages of plain estimates on both levels: no second evaluation at the old point.

    .. math::
        u_k &= (1 - \beta) u_{k-1} + \beta \nabla_y G(x_k, y_k; B_y), \qquad
        v_k = (1 - \alpha) v_{k-1} + \alpha \hat\nabla\Phi(x_k, y_k; B_x) \\
        y_{k+1} &= y_k - \tau u_k, \qquad x_{k+1} = x_k - \gamma v_k
    """

    about = About(
        loops="single",
        reduces="x and y (moving average)",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "Q * S"},
        draws={"F": "S", "G": "(Q + 2) * S"},
        complexity="eps^-2",
        reference="Guo, Xu, Yin, Jin, Yang. On Stochastic Moving-Average Estimators for Non-Convex Optimization. "
        "arXiv:2104.14840, 2021",
    )

    gamma: Scalar = outer_step(default=0.1)
    tau: Scalar = inner_step(default=0.1)
    alpha: Scalar = weight(default=0.1, doc="weight of the new hypergradient in its average")
    beta: Scalar = weight(default=0.1, doc="weight of the new inner gradient in its average")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(x0), zeros_like(y0), gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x, key_L = jax.random.split(key, 3)
        B_y, B_x = oracle.draw_G(key_y, self.S), neumann.draw(oracle, key_x, self.S, self.Q)
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, s.y, self.S)
        Phi = neumann.hypergrad(oracle, s.x, s.y, B_x, eta)
        first = s.k == 0  # the averages start at the first values
        v = lerp(jnp.where(first, 1, self.alpha), s.v, Phi.value)
        u = lerp(jnp.where(first, 1, self.beta), s.u, oracle.grad_G(s.x, s.y, B_y))
        y = oracle.project_y(axpy(-self.tau, u, s.y))
        x = oracle.project_x(axpy(-self.gamma, v, s.x))
        return State(s.k + 1, x, y, v, u, gauge.note(L, Phi.growth)), info_of(v, u, Phi, eta, L)

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + neumann.cost(self.S, self.Q)
