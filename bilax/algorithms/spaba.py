"""SPABA, which refreshes by the toss of a coin (Chu, Xu, Yao and Zhang, ICML 2024)."""

from typing import final

import jax

from bilax.algorithms import directions
from bilax.algorithms.about import About, Scaling
from bilax.algorithms.directions import Point
from bilax.algorithms.protocol import Draws, Info, info
from bilax.algorithms.srba import State, first, moved
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
from bilax.optimisers import Step
from bilax.oracle import Counts, Oracle
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar

COIN = 0x5BABA  # the coin does not depend on the seed: the members of a sweep refresh together


@final
@hyperparameters
class SPABA:
    r"""SOBA's three directions by PAGE: exact with probability 1/q, else corrected by SARAH differences.

    .. math::
        d_k = d_{k-1} + D(x_k, y_k, v_k; \zeta, \xi) - D(x_{k-1}, y_{k-1}, v_{k-1}; \zeta, \xi), \qquad
        (y, v, x)_{k+1} = (y, v, x)_k - (\rho, \rho_v, \gamma) d_k

    One coin is tossed for all three directions, and step 0 refreshes. "Exact" is on all data, or on batches of S1
    samples where that is not 0, as for data without end.

    >>> SPABA(S=10).draws()
    Draws(F=9.9, G=9.9)
    """

    about = About(
        name="spaba",
        loops="single",
        reduces="x, y and v (PAGE)",
        calls={
            "F": "2 * S * (1 - 1 / q) + (S1 or m) / q",
            "G": "2 * S * (1 - 1 / q) + (S1 or n) / q",
            "JV": "2 * S * (1 - 1 / q) + (S1 or n) / q",
            "HV": "2 * S * (1 - 1 / q) + (S1 or n) / q",
        },
        draws={"F": "S * (1 - 1 / q) + (S1 or m) / q", "G": "S * (1 - 1 / q) + (S1 or n) / q"},
        complexity="(n + m)^0.5 eps^-1, or eps^-1.5 for data without end",
        reference="Chu, Xu, Yao, Zhang. SPABA: A Single-Loop and Probabilistic Stochastic Bilevel Algorithm Achieving "
        "Optimal Sample Complexity. ICML 2024",
        random={
            "F": "2 * S * (1 - 1 / q) + (S1 or m) / q",
            "G": "2 * S * (1 - 1 / q) + (S1 or n) / q",
            "JV": "2 * S * (1 - 1 / q) + (S1 or n) / q",
            "HV": "2 * S * (1 - 1 / q) + (S1 or n) / q",
        },
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
    q: int = count(default=100, doc="steps from one refresh to the next, on average: its chance is 1/q")
    S: int = batch_size(default=64, doc="size of both batches")
    S1: int = count(default=0, doc="size of the batches at a refresh; 0 for all data", at_least=0)
    radius: Scalar = nonnegative(default=0.0, doc="radius of the ball that v is kept in; 0 for none")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return first(self, x0, y0)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        z, key_1, key_2 = Point(s.x, s.y, s.v), *jax.random.split(key)

        def anew() -> directions.Directions:
            if self.S1:
                return directions.on_batches(oracle, z, *directions.draw(oracle, key_1, self.S1))
            return directions.on_all_data(oracle, z)

        refresh = refreshes(s.k, self.q)
        d = directions.sarah(
            oracle, key_2, refresh, anew, directions.Directions(s.d_y, s.d_v, s.d_x),
            z, Point(s.x_prev, s.y_prev, s.v_prev), self.S,
        )  # fmt: skip
        each = Counts(F=1, G=1, JV=1, HV=1)
        calls = directions.calls_if(
            refresh, self.S1 * each if self.S1 else directions.one_pass(oracle), 2 * self.S * each
        )
        return moved(self, oracle, s, d), info(d.x, d.y, calls, rho_v=self.rho_v, refreshed=refresh)

    def cost(self, k: int) -> Counts:
        return Counts()  # the coin decides: a step tells what it has called

    def draws(self) -> Draws:
        each = self.S * (1 - 1 / self.q) + self.S1 / self.q
        return Draws(F=each, G=each)

    def passes(self) -> float:
        return 0.0 if self.S1 else 1 / self.q


def refreshes(k: Scalar, q: int) -> jax.Array:
    """Toss the coin of step k."""
    return (k == 0) | (jax.random.uniform(keys.at(keys.root(COIN), k)) < 1 / q)
