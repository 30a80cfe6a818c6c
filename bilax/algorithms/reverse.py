"""Reverse-mode differentiation through the inner loop, whole or truncated (Franceschi et al., ICML 2017)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import unrolled
from bilax.hyperparameters import batch_size, count, hyperparameters, inner_step, outer_step
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # where the inner loop starts
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class Reverse:
    r"""T inner gradient steps, then the gradient of F with respect to x through the last K of them.

    .. math::
        x_{k+1} = x_k - \alpha \frac{d}{dx} F(x, y_T(x)), \qquad
        y_{t+1} = y_t - \beta \nabla_y G(x, y_t; B_t)

    K = 0 means all T steps; K < T is truncated back-propagation. As published it is deterministic: run it with
    ``sampler="full"``. It differentiates unprojected inner steps, so it takes no projection of y.

    >>> Reverse(S=10).cost(k=0)
    Counts(F=10, G=190, JV=100, HV=100, HINV=0)
    """

    about = About(
        name="reverse",
        loops="double",
        reduces="nothing (deterministic)",
        calls={"F": "S", "G": "(T + kept) * S", "JV": "last * S", "HV": "last * S"},
        draws={"F": "S", "G": "T * S"},
        complexity="eps^-1, deterministic",
        reference="Franceschi, Donini, Frasconi, Pontil. Forward and Reverse Gradient-Based Hyperparameter "
        "Optimization. ICML 2017",
        scaling=Scaling(
            exponent=1.0,
            fixed=lambda eps: {"T": 20},
            grid={"alpha": (0.02, 0.05, 0.1, 0.2), "beta": (0.2, 0.4, 0.6, 0.8)},
            steps=2_000,
            sampler="full",
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    K: int = count(default=0, doc="steps to differentiate through, 0 for all", at_least=0)
    S: int = batch_size(default=64, doc="size of every batch")

    @property
    def last(self) -> int:
        return min(self.K, self.T) or self.T

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F = jax.random.split(key)
        B_F = oracle.draw_F(key_F, self.S)
        h, y, y_memory, u = unrolled.hypergrad(
            oracle, key_y, B_F, s.x, s.y, s.y_memory, self.beta, self.T, self.last, self.S
        )
        x, x_memory = descend(self.alpha, s.x_memory, h.value, s.x, oracle.project_x)
        return State(s.k + 1, x, y, x_memory, y_memory), info(h.value, u, residual=h.residual)

    def cost(self, k: int) -> Counts:
        return unrolled.cost(self.S, self.T, self.last)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.T * self.S)
