"""AID, approximate implicit differentiation: by fixed point (Grazzi et al., ICML 2020) or conjugate gradients."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import sgd
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import conjugate_gradient, fixed_point, neumann
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step
from bilax.numerics.tree import real
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree

_REFERENCE = "Grazzi, Franceschi, Pontil, Salzo. On the Iteration Complexity of Hypergradient Computation. ICML 2020"
_GRID = {"alpha": (0.02, 0.05, 0.1, 0.2), "beta": (0.2, 0.4, 0.6, 0.8)}


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # where the inner loop starts
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class AIDFP:
    r"""T inner gradient steps, then N fixed-point iterations for the linear system, on one batch.

    .. math::
        v_{i+1} = (I - \eta \nabla_y^2 G) v_i + \nabla_y F, \qquad
        x_{k+1} = x_k - \alpha (\nabla_x F - \eta \nabla_x\nabla_y G \, v_N)

    As published it is deterministic: run it with ``sampler="full"``.

    >>> AIDFP(S=10).cost(k=0)
    Counts(F=10, G=100, JV=10, HV=100, HINV=0)
    """

    about = About(
        name="aid-fp",
        loops="double",
        reduces="nothing (deterministic)",
        calls={"F": "S", "G": "T * S", "JV": "S", "HV": "N * S"},
        draws={"F": "S", "G": "(T + 1) * S"},
        complexity="eps^-1, deterministic",
        reference=_REFERENCE,
        scaling=Scaling(
            exponent=1.0,
            fixed=lambda eps: {"N": 10, "eta": 0.75, "T": 5},
            grid=_GRID,
            steps=2_000,
            sampler="full",
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    N: int = count(default=10, doc="fixed-point iterations")
    eta: Eta = series_step(default="auto", doc="step of the fixed-point map, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_G = jax.random.split(key, 3)
        y, y_memory, u = sgd(oracle, key_y, s.x, s.y, s.y_memory, self.T, self.S, self.beta)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        h = fixed_point.hypergrad(oracle, s.x, y, B_F, B_G, self.N, self.eta)
        x, x_memory = descend(self.alpha, s.x_memory, h.value, s.x, oracle.project_x)
        return State(s.k + 1, x, y, x_memory, y_memory), info(h.value, u, **neumann.told(h, self.eta))

    def cost(self, k: int) -> Counts:
        return Counts(G=self.T * self.S) + fixed_point.cost(self.S, self.N)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.T + 1) * self.S)


@final
@hyperparameters
class AIDCG:
    r"""T inner gradient steps, then N steps of conjugate gradients for the linear system, on one batch.

    .. math::
        \nabla_y^2 G \, w = \nabla_y F, \qquad x_{k+1} = x_k - \alpha (\nabla_x F - \nabla_x\nabla_y G \, w)

    As published it is deterministic: run it with ``sampler="full"``.

    >>> AIDCG(S=10).cost(k=0)
    Counts(F=10, G=100, JV=10, HV=100, HINV=0)
    """

    about = About(
        name="aid-cg",
        loops="double",
        reduces="nothing (deterministic)",
        calls={"F": "S", "G": "T * S", "JV": "S", "HV": "N * S"},
        draws={"F": "S", "G": "(T + 1) * S"},
        complexity="eps^-1, deterministic",
        reference=_REFERENCE,
        scaling=Scaling(
            exponent=1.0,
            fixed=lambda eps: {"N": 4, "T": 5},
            grid=_GRID,
            steps=2_000,
            sampler="full",
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    N: int = count(default=10, doc="steps of conjugate gradients")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_G = jax.random.split(key, 3)
        y, y_memory, u = sgd(oracle, key_y, s.x, s.y, s.y_memory, self.T, self.S, self.beta)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        h = conjugate_gradient.hypergrad(oracle, s.x, y, B_F, B_G, self.N)
        x, x_memory = descend(self.alpha, s.x_memory, h.value, s.x, oracle.project_x)
        told = {"residual": h.residual, "negative_curvature": real(h.negative)}
        return State(s.k + 1, x, y, x_memory, y_memory), info(h.value, u, **told)

    def cost(self, k: int) -> Counts:
        return Counts(G=self.T * self.S) + conjugate_gradient.cost(self.S, self.N)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.T + 1) * self.S)
