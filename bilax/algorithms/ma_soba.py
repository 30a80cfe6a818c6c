"""MA-SOBA, SOBA with a moving average (Chen, Xiao and Balasubramanian, JMLR 2024)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms import directions
from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import Eta, batch_size, hyperparameters, inner_step, outer_step, series_step, weight
from bilax.numerics.tree import lerp, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    h: PyTree  # h_k, the average of the directions of x
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class MASOBA:
    r"""SOBA, but x moves along an average of its directions: the rate of SOBA without its additional smoothness.

    .. math::
        x_{k+1} &= x_k - \alpha h_k \\
        y_{k+1} &= y_k - \beta \nabla_y G(x_k, y_k; \zeta) \\
        v_{k+1} &= v_k - \nu (\nabla_y^2 G(x_k, y_k; \zeta) v_k - \nabla_y F(x_k, y_k; \xi)) \\
        h_{k+1} &= (1 - \theta) h_k + \theta (\nabla_x F(x_k, y_k; \xi) - \nabla_x\nabla_y G(x_k, y_k; \zeta) v_k)

    with v_0 = 0 and h_0 = 0. All steps are constant, and x moves along the average from before this step's sample.

    >>> MASOBA(S=10).cost(k=0)
    Counts(F=10, G=10, JV=10, HV=10, HINV=0)
    """

    about = About(
        name="ma-soba",
        loops="single",
        reduces="x (moving average)",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "S"},
        draws={"F": "S", "G": "S"},
        complexity="eps^-2",
        reference="Chen, Xiao, Balasubramanian. Optimal Algorithms for Stochastic Bilevel Optimization under Relaxed "
        "Smoothness Conditions. JMLR 2024",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"S": 1, "beta": min(1.0, eps), "nu": min(0.5, eps)},
            grid={"alpha": (0.0003, 0.001, 0.003, 0.01), "theta": (0.03, 0.1, 0.3, 1.0)},
            steps=130_000,
            others=(
                lambda eps: {"S": 1, "beta": min(1.0, 4 * eps), "nu": min(0.5, eps)},
                lambda eps: {"S": 1, "beta": min(1.0, 4 * eps), "nu": min(0.5, 4 * eps)},
            ),
        ),
    )

    alpha: Step = outer_step(default=0.01)
    beta: Step = inner_step(default=0.1)
    nu: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    theta: Scalar = weight(default=0.1, doc="weight of the newest direction in the average")
    S: int = batch_size(default=64, doc="size of both batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(y0), zeros_like(x0), start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        D = directions.on_batches(oracle, directions.Point(s.x, s.y, s.v), *directions.draw(oracle, key, self.S))
        x, x_memory = descend(self.alpha, s.x_memory, s.h, s.x, oracle.project_x)
        y, y_memory = descend(self.beta, s.y_memory, D.y, s.y, oracle.project_y)
        v, _ = descend(self.nu, (), D.v, s.v)
        h = lerp(self.theta, s.h, D.x)
        return State(s.k + 1, x, y, v, h, x_memory, y_memory), info(h, D.y, nu=self.nu)

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=self.S, JV=self.S, HV=self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)
