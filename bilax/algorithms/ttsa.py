"""TTSA, two-timescale stochastic approximation (Hong, Wai, Wang and Yang, SIAM J. Optim. 2023)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import gauge, random_neumann
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
from bilax.inner import decay
from bilax.oracle import Counts, Oracle
from bilax.tree import axpy
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    gauge: gauge.Gauge | None


@final
@hyperparameters
class TTSA:
    r"""One step of SGD on y, one projected step on x at the new y; the steps on x decrease faster.

    .. math::
        y_{k+1} &= y_k - \frac{\beta}{(k+1)^b} \nabla_y G(x_k, y_k; \zeta_k) \\
        x_{k+1} &= \mathrm{Proj}_X\Big(x_k - \frac{\alpha}{(k+1)^a} h_k\Big), \quad h_k \text{ at } (x_k, y_{k+1})
    """

    about = About(
        loops="single",
        reduces="nothing",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "Q / 2 * S"},
        random={"HV": "Q / 2 * S"},
        draws={"F": "S", "G": "(2 + Q / 2) * S"},
        complexity="eps^-2.5",
        reference="Hong, Wai, Wang, Yang. A Two-Timescale Stochastic Algorithm Framework for Bilevel Optimization. "
        "SIAM J. Optim. 33, 2023",
    )

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    a: Scalar = nonnegative(default=0.6, doc="exponent of the outer step, alpha / (k+1)^a")
    b: Scalar = nonnegative(default=0.4, doc="exponent of the inner step, beta / (k+1)^b")
    Q: int = count(default=3, doc="largest number of Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x, key_L = jax.random.split(key, 3)
        u = oracle.grad_G(s.x, s.y, oracle.draw_G(key_y, self.S))
        y = oracle.project_y(axpy(-decay(self.beta, s.k, self.b), u, s.y))
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, y, self.S)
        B_x = random_neumann.draw(oracle, key_x, self.S, self.Q)
        h = random_neumann.hypergrad(oracle, s.x, y, B_x, eta)
        x = oracle.project_x(axpy(-decay(self.alpha, s.k, self.a), h.value, s.x))
        info = info_of(h.value, u, h, eta, L, random_neumann.spent(B_x))
        return State(s.k + 1, x, y, gauge.note(L, h.growth)), info

    def cost(self, k: int) -> Counts:
        return Counts(G=self.S) + random_neumann.cost(self.S)
