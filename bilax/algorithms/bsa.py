"""BSA, bilevel stochastic approximation (Ghadimi and Wang, 2018)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import decay, sgd
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
    y: PyTree  # where the inner loop starts: where the last one ended
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class BSA:
    r"""T steps of SGD on y with decreasing steps, then a projected step on x along a series of random length.

    .. math::
        y^{t+1} &= y^t - \frac{\beta}{(t+1)^b} \nabla_y G(x_k, y^t; \zeta_t), \quad t < T \\
        x_{k+1} &= \mathrm{Proj}_X\Big(x_k - \frac{\alpha}{(k+1)^a} h_k\Big), \quad h_k \text{ at } (x_k, y^T)

    >>> BSA(S=10).draws()
    Draws(F=10, G=125.0)
    """

    about = About(
        name="bsa",
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "T * S", "JV": "S", "HV": "Q / 2 * S"},
        random={"HV": "Q / 2 * S"},
        draws={"F": "S", "G": "(T + 1 + Q / 2) * S"},
        complexity="eps^-2 in F, eps^-3 in G",
        reference="Ghadimi, Wang. Approximation Methods for Bilevel Programming. arXiv:1802.02246, 2018",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "T": 5, "S": 1},
            grid={"alpha": (2e-4, 5e-4, 2.5e-3, 1e-2), "beta": (0.02, 0.05, 0.1, 0.2)},
            steps=100_000,
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    a: Scalar = nonnegative(default=0.0, doc="exponent of the outer step, alpha / (k+1)^a")
    b: Scalar = nonnegative(default=0.0, doc="exponent of the inner step, beta / (t+1)^b")
    T: int = count(default=10, doc="inner steps")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        y, y_memory, u = sgd(oracle, key_y, s.x, s.y, s.y_memory, self.T, self.S, self.beta, self.b)
        B_x = random_neumann.draw(oracle, key_x, self.S, self.Q)
        h = random_neumann.hypergrad(oracle, s.x, y, B_x, self.eta)
        x, x_memory = descend(self.alpha, s.x_memory, h.value, s.x, oracle.project_x, decay(s.k, self.a))
        calls = Counts(HV=random_neumann.spent(B_x))
        return State(s.k + 1, x, y, x_memory, y_memory), info(h.value, u, calls, **neumann.told(h, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.T * self.S) + random_neumann.cost(self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.T + 1 + self.Q / 2) * self.S)
