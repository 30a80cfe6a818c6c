"""AID, approximate implicit differentiation: by fixed point (Grazzi et al., ICML 2020) or conjugate gradients."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import conjugate_gradient, fixed_point, gauge
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step
from bilax.inner import sgd
from bilax.oracle import Counts, Oracle
from bilax.tree import axpy
from bilax.types import Key, PyTree, Scalar

_REFERENCE = "Grazzi, Franceschi, Pontil, Salzo. On the Iteration Complexity of Hypergradient Computation. ICML 2020"
_CALLS = {"F": "S", "G": "T * S", "JV": "S", "HV": "N * S"}
_DRAWS = {"F": "S", "G": "(T + 1) * S"}


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # where the inner loop starts
    gauge: gauge.Gauge | None


@final
@hyperparameters
class AIDFP:
    r"""T inner gradient steps, then N fixed-point iterations for the linear system, on one batch.

    .. math::
        v_{i+1} = (I - \eta \nabla_y^2 G) v_i + \nabla_y F, \qquad
        x_{k+1} = x_k - \alpha (\nabla_x F - \eta \nabla_x\nabla_y G \, v_N)

    As published it is deterministic: run it with ``sampler="full"``.
    """

    about = About("double", "nothing (deterministic)", _CALLS, _DRAWS, "eps^-1, deterministic", _REFERENCE)

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    N: int = count(default=10, doc="fixed-point iterations")
    eta: Eta = series_step(default="auto", doc="step of the fixed-point map, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_G, key_L = jax.random.split(key, 4)
        y, u = sgd(oracle, key_y, s.x, s.y, self.T, self.S, lambda t: self.beta)
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, y, self.S)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        h = fixed_point.hypergrad(oracle, s.x, y, B_F, B_G, self.N, eta)
        x = oracle.project_x(axpy(-self.alpha, h.value, s.x))
        return State(s.k + 1, x, y, gauge.note(L, h.growth)), info_of(h.value, u, h, eta, L)

    def cost(self, k: int) -> Counts:
        return Counts(G=self.T * self.S) + fixed_point.cost(self.S, self.N)


@final
@hyperparameters
class AIDCG:
    r"""T inner gradient steps, then N steps of conjugate gradients for the linear system, on one batch.

    .. math::
        \nabla_y^2 G \, w = \nabla_y F, \qquad x_{k+1} = x_k - \alpha (\nabla_x F - \nabla_x\nabla_y G \, w)

    As published it is deterministic: run it with ``sampler="full"``.
    """

    about = About("double", "nothing (deterministic)", _CALLS, _DRAWS, "eps^-1, deterministic", _REFERENCE)

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    N: int = count(default=10, doc="steps of conjugate gradients")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, None)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_G = jax.random.split(key, 3)
        y, u = sgd(oracle, key_y, s.x, s.y, self.T, self.S, lambda t: self.beta)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        h = conjugate_gradient.hypergrad(oracle, s.x, y, B_F, B_G, self.N)
        x = oracle.project_x(axpy(-self.alpha, h.value, s.x))
        return State(s.k + 1, x, y, None), info_of(h.value, u, h, 0.0, None)

    def cost(self, k: int) -> Counts:
        return Counts(G=self.T * self.S) + conjugate_gradient.cost(self.S, self.N)
