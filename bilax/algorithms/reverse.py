"""Reverse-mode differentiation through the inner loop, whole or truncated (Franceschi et al., ICML 2017)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import unrolled
from bilax.hyperparameters import batch_size, count, hyperparameters, inner_step, outer_step
from bilax.oracle import Counts, Oracle
from bilax.problem import unconstrained
from bilax.tree import axpy
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # where the inner loop starts


@final
@hyperparameters
class Reverse:
    r"""T inner gradient steps, then the gradient of F with respect to x through the last K of them.

    .. math::
        x_{k+1} = x_k - \alpha \frac{d}{dx} F(x, y_T(x)), \qquad
        y_{t+1} = y_t - \beta \nabla_y G(x, y_t; B_t)

    K = 0 means all T steps; K < T is truncated back-propagation. As published it is deterministic: run it with
    ``sampler="full"``. It differentiates unprojected inner steps, so it takes no projection of y.
    """

    about = About(
        loops="double",
        reduces="nothing (deterministic)",
        calls={"F": "S", "G": "(T + kept) * S", "JV": "last * S", "HV": "last * S"},
        draws={"F": "S", "G": "T * S"},
        complexity="eps^-1, deterministic",
        reference="Franceschi, Donini, Frasconi, Pontil. Forward and Reverse Gradient-Based Hyperparameter "
        "Optimization. ICML 2017",
    )

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    K: int = count(default=0, doc="steps to differentiate through, 0 for all", at_least=0)
    S: int = batch_size(default=64, doc="size of every batch")

    @property
    def last(self) -> int:
        return min(self.K, self.T) or self.T

    def init(self, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        if oracle.project_y is not unconstrained:
            raise ValueError("Reverse differentiates unprojected inner steps: give a problem without project_y.")
        key_y, key_F = jax.random.split(key)
        B_F = oracle.draw_F(key_F, self.S)
        h, y, u = unrolled.hypergrad(oracle, key_y, B_F, s.x, s.y, self.beta, self.T, self.last, self.S)
        x = oracle.project_x(axpy(-self.alpha, h.value, s.x))
        return State(s.k + 1, x, y), info_of(h.value, u, h, 0.0, None)

    def cost(self, k: int) -> Counts:
        return unrolled.cost(self.S, self.T, self.last)
