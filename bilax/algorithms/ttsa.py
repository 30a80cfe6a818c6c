"""TTSA, two-timescale stochastic approximation (Hong, Wai, Wang and Yang, SIAM J. Optim. 2023)."""

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
    series_step,
)
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class TTSA:
    r"""One step of SGD on y, one projected step on x at the new y; the steps on x decrease faster.

    .. math::
        y_{k+1} &= y_k - \frac{\beta}{(k+1)^b} \nabla_y G(x_k, y_k; \zeta_k) \\
        x_{k+1} &= \mathrm{Proj}_X\Big(x_k - \frac{\alpha}{(k+1)^a} h_k\Big), \quad h_k \text{ at } (x_k, y_{k+1})

    >>> TTSA(S=10).draws()
    Draws(F=10, G=35.0)
    """

    about = About(
        name="ttsa",
        loops="single",
        reduces="nothing",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "Q / 2 * S"},
        random={"HV": "Q / 2 * S"},
        draws={"F": "S", "G": "(2 + Q / 2) * S"},
        complexity="eps^-2.5",
        reference="Hong, Wai, Wang, Yang. A Two-Timescale Stochastic Algorithm Framework for Bilevel Optimization. "
        "SIAM J. Optim. 33, 2023",
        scaling=Scaling(
            exponent=2.5,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1},
            grid={"alpha": (0.01, 0.03, 0.1, 0.3), "beta": (0.3, 0.6, 1.0, 1.5)},
            steps=15_000,
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    a: Scalar = nonnegative(default=0.6, doc="exponent of the outer step, alpha / (k+1)^a")
    b: Scalar = nonnegative(default=0.4, doc="exponent of the inner step, beta / (k+1)^b")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        u = oracle.grad_G(s.x, s.y, oracle.draw_G(key_y, self.S))
        y, y_memory = descend(self.beta, s.y_memory, u, s.y, oracle.project_y, decay(s.k, self.b))
        B_x = random_neumann.draw(oracle, key_x, self.S, self.Q)
        h = random_neumann.hypergrad(oracle, s.x, y, B_x, self.eta)
        x, x_memory = descend(self.alpha, s.x_memory, h.value, s.x, oracle.project_x, decay(s.k, self.a))
        calls = Counts(HV=random_neumann.spent(B_x))
        return State(s.k + 1, x, y, x_memory, y_memory), info(h.value, u, calls, **neumann.told(h, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + random_neumann.cost(self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(2 + self.Q / 2) * self.S)
