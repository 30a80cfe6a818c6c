"""stocBiO, the stochastic bilevel optimizer (Ji, Yang and Liang, ICML 2021)."""

import math
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import sgd
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import neumann
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_{k-1}^D, where the inner loop starts
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class StocBiO:
    r"""D steps of SGD on y, then one of SGD on x along the estimate of equation 4.

    .. math::
        y^{t+1} &= y^t - \alpha \nabla_y G(x_k, y^t; B_t), \quad t < D \\
        x_{k+1} &= x_k - \beta \hat\nabla\Phi(x_k, y^D; B_x)

    >>> StocBiO(S=10).cost(k=0)
    Counts(F=10, G=100, JV=10, HV=30, HINV=0)
    """

    about = About(
        name="stocbio",
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "D * S", "JV": "S", "HV": "Q * S"},
        draws={"F": "S", "G": "(D + Q + 1) * S"},
        complexity="eps^-2",
        reference="Ji, Yang, Liang. Bilevel Optimization: Convergence Analysis and Enhanced Design. ICML 2021",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "D": 5, "S": math.ceil(1 / eps)},
            grid={"beta": (0.01, 0.03, 0.06, 0.12), "alpha": (0.1, 0.2, 0.4, 0.6)},
            steps=4_000,
            others=(
                lambda eps: {"Q": 10, "eta": 0.75, "D": 5, "S": math.ceil(0.25 / eps)},
                lambda eps: {"Q": 10, "eta": 0.75, "D": 5, "S": math.ceil(4 / eps)},
            ),
        ),
    )

    alpha: Step = inner_step(default=0.1)
    beta: Step = outer_step(default=0.1)
    D: int = count(default=10, doc="inner steps")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.beta, x0), start(self.alpha, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        y, y_memory, u = sgd(oracle, key_y, s.x, s.y, s.y_memory, self.D, self.S, self.alpha)
        Phi = neumann.hypergrad(oracle, s.x, y, neumann.draw(oracle, key_x, self.S, self.Q), self.eta)
        x, x_memory = descend(self.beta, s.x_memory, Phi.value, s.x, oracle.project_x)
        return State(s.k + 1, x, y, x_memory, y_memory), info(Phi.value, u, **neumann.told(Phi, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.D * self.S) + neumann.cost(self.S, self.Q)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.D + self.Q + 1) * self.S)
