"""stocBiO, the stochastic bilevel optimizer (Ji, Yang and Liang, ICML 2021)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import gauge, neumann
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step
from bilax.inner import sgd
from bilax.oracle import Counts, Oracle
from bilax.tree import axpy
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_{k-1}^D, where the inner loop starts
    gauge: gauge.Gauge | None


@final
@hyperparameters
class StocBiO:
    r"""D steps of SGD on y, then one of SGD on x along the estimate of equation 4.

    .. math::
        y^{t+1} &= y^t - \alpha \nabla_y G(x_k, y^t; B_t), \quad t < D \\
        x_{k+1} &= x_k - \beta \hat\nabla\Phi(x_k, y^D; B_x)
    """

    about = About(
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "D * S", "JV": "S", "HV": "Q * S"},
        draws={"F": "S", "G": "(D + Q + 1) * S"},
        complexity="eps^-2",
        reference="Ji, Yang, Liang. Bilevel Optimization: Convergence Analysis and Enhanced Design. ICML 2021",
    )

    alpha: Scalar = inner_step(default=0.1)
    beta: Scalar = outer_step(default=0.1)
    D: int = count(default=10, doc="inner steps")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x, key_L = jax.random.split(key, 3)
        y, u = sgd(oracle, key_y, s.x, s.y, self.D, self.S, lambda t: self.alpha)
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, y, self.S)
        Phi = neumann.hypergrad(oracle, s.x, y, neumann.draw(oracle, key_x, self.S, self.Q), eta)
        x = oracle.project_x(axpy(-self.beta, Phi.value, s.x))
        return State(s.k + 1, x, y, gauge.note(L, Phi.growth)), info_of(Phi.value, u, Phi, eta, L)

    def cost(self, k: int) -> Counts:
        return Counts(G=self.D * self.S) + neumann.cost(self.S, self.Q)
