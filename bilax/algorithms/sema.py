"""SEMA, stochastic estimators with moving averages (Guo, Xu, Yin, Jin and Yang, 2021)."""

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
    outer_step,
    series_step,
    weight,
)
from bilax.numerics.tree import lerp, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_{k-1}
    u: PyTree  # u_{k-1}
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class SEMA:
    r"""Moving averages of plain estimates on both levels: no second evaluation at the old point.

    .. math::
        u_k &= (1 - \beta) u_{k-1} + \beta \nabla_y G(x_k, y_k; B_y), \qquad
        v_k = (1 - \alpha) v_{k-1} + \alpha \hat\nabla\Phi(x_k, y_k; B_x) \\
        y_{k+1} &= y_k - \tau u_k, \qquad x_{k+1} = x_k - \gamma v_k

    >>> SEMA(S=10).cost(k=0)
    Counts(F=10, G=10, JV=10, HV=30, HINV=0)
    """

    about = About(
        name="sema",
        loops="single",
        reduces="x and y (moving average)",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "Q * S"},
        draws={"F": "S", "G": "(Q + 2) * S"},
        complexity="eps^-2",
        reference="Guo, Xu, Yin, Jin, Yang. On Stochastic Moving-Average Estimators for Non-Convex Optimization. "
        "arXiv:2104.14840, 2021",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1},
            grid={"gamma": (1e-4, 3e-4, 1e-3, 3e-3), "tau": (0.03, 0.1), "alpha": (0.03, 0.3)},
            steps=130_000,
        ),
    )

    gamma: Step = outer_step(default=0.1)
    tau: Step = inner_step(default=0.1)
    alpha: Scalar = weight(default=0.1, doc="weight of the new hypergradient in its average")
    beta: Scalar = weight(default=0.1, doc="weight of the new inner gradient in its average")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(x0), zeros_like(y0), start(self.gamma, x0), start(self.tau, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        B_y, B_x = oracle.draw_G(key_y, self.S), neumann.draw(oracle, key_x, self.S, self.Q)
        Phi = neumann.hypergrad(oracle, s.x, s.y, B_x, self.eta)
        first = s.k == 0  # the averages start at the first values
        v = lerp(jnp.where(first, 1, self.alpha), s.v, Phi.value)
        u = lerp(jnp.where(first, 1, self.beta), s.u, oracle.grad_G(s.x, s.y, B_y))
        y, y_memory = descend(self.tau, s.y_memory, u, s.y, oracle.project_y)
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x)
        return State(s.k + 1, x, y, v, u, x_memory, y_memory), info(v, u, **neumann.told(Phi, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + neumann.cost(self.S, self.Q)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.Q + 2) * self.S)
