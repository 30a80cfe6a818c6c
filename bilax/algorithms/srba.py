"""SRBA, a near-optimal method for finite sums (Dagréou, Moreau, Vaiter and Ablin, AISTATS 2024)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms import directions
from bilax.algorithms.about import About, Scaling
from bilax.algorithms.directions import Point
from bilax.algorithms.protocol import Draws, Info, info
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
from bilax.numerics.tree import zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    x_prev: PyTree
    y_prev: PyTree
    v_prev: PyTree
    d_x: PyTree  # the directions of the last step
    d_y: PyTree
    d_v: PyTree
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


def first(algorithm: Any, x0: PyTree, y0: PyTree) -> State:
    v, x, y = zeros_like(y0), x0, y0
    memories = start(algorithm.gamma, x0), start(algorithm.rho, y0)
    return State(jnp.zeros((), jnp.int32), x, y, v, x, y, v, zeros_like(x), zeros_like(y), v, *memories)


def moved(algorithm: Any, oracle: Oracle, s: State, d: directions.Directions) -> State:
    """Return the state after a step along the directions, all three from the same point."""
    x, x_memory = descend(algorithm.gamma, s.x_memory, d.x, s.x, oracle.project_x)
    y, y_memory = descend(algorithm.rho, s.y_memory, d.y, s.y, oracle.project_y)
    v = directions.in_ball(descend(algorithm.rho_v, (), d.v, s.v)[0], algorithm.radius)
    return State(s.k + 1, x, y, v, s.x, s.y, s.v, d.x, d.y, d.v, x_memory, y_memory)


@final
@hyperparameters
class SRBA:
    r"""SOBA's three directions, exact every q iterations and corrected by SARAH differences in between.

    .. math::
        d_k = d_{k-1} + D(x_k, y_k, v_k; \zeta, \xi) - D(x_{k-1}, y_{k-1}, v_{k-1}; \zeta, \xi), \qquad
        (y, v, x)_{k+1} = (y, v, x)_k - (\rho, \rho_v, \gamma) d_k

    and d_k is that of all data where q divides k. The theory keeps v in a ball, the authors' code does not: set
    ``radius`` if you want it.

    >>> SRBA(q=2, S=10).cost(k=1)
    Counts(F=20, G=20, JV=20, HV=20, HINV=0)
    """

    about = About(
        name="srba",
        loops="single",
        reduces="x, y and v (SARAH, refreshed by all data)",
        calls={
            "F": "2 * S * (1 - 1 / q) + m / q",
            "G": "2 * S * (1 - 1 / q) + n / q",
            "JV": "2 * S * (1 - 1 / q) + n / q",
            "HV": "2 * S * (1 - 1 / q) + n / q",
        },
        draws={"F": "S * (1 - 1 / q) + m / q", "G": "S * (1 - 1 / q) + n / q"},
        complexity="(n + m)^0.5 eps^-1",
        reference="Dagréou, Moreau, Vaiter, Ablin. A Lower Bound and a Near-Optimal Algorithm for Bilevel Empirical "
        "Risk Minimization. AISTATS 2024",
        random={"F": "m / q", "G": "n / q", "JV": "n / q", "HV": "n / q"},
        scaling=Scaling(
            exponent=1.0,
            fixed=lambda eps: {"S": 8, "q": 100, "rho_v": 0.5},
            grid={"gamma": (0.005, 0.01, 0.02, 0.05), "rho": (0.1, 0.8, 1.2, 1.6)},
            steps=10_000,
        ),
    )

    gamma: Step = outer_step(default=0.01)
    rho: Step = inner_step(default=0.1)
    rho_v: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    q: int = count(default=100, doc="steps from one pass over all data to the next")
    S: int = batch_size(default=64, doc="size of both batches")
    radius: Scalar = nonnegative(default=0.0, doc="radius of the ball that v is kept in; 0 for none")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return first(self, x0, y0)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        refresh, z = s.k % self.q == 0, Point(s.x, s.y, s.v)
        d = directions.sarah(
            oracle, key, refresh, lambda: directions.on_all_data(oracle, z), directions.Directions(s.d_y, s.d_v, s.d_x),
            z, Point(s.x_prev, s.y_prev, s.v_prev), self.S,
        )  # fmt: skip
        calls = directions.calls_if(refresh, directions.one_pass(oracle))
        return moved(self, oracle, s, d), info(d.x, d.y, calls, rho_v=self.rho_v)

    def cost(self, k: int) -> Counts:
        return Counts() if k % self.q == 0 else 2 * Counts(F=self.S, G=self.S, JV=self.S, HV=self.S)

    @property
    def period(self) -> int:
        return self.q

    def draws(self) -> Draws:
        return Draws(F=self.S * (1 - 1 / self.q), G=self.S * (1 - 1 / self.q))

    def passes(self) -> float:
        return 1 / self.q
