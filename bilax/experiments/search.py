"""Search a grid of settings: all of them by one compiled program, a few side by side, the best ones for longer.

A rung runs every remaining setting to the same iteration, then keeps the best quarter. The program has a fixed number
of lanes (`jax.vmap`), so that later rungs, with fewer settings, do not compile again.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax import settings
from bilax.algorithms.protocol import Algorithm
from bilax.errors import unknown
from bilax.oracle import Traced, traced
from bilax.problem import Problem
from bilax.running import loop
from bilax.running.checks import first_state
from bilax.running.sweep import groups_of, on_every_core, one_program
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.types import PyTree

KEEP = 4  # one in four settings survives a rung


class Trial(NamedTuple):
    """A setting, how far it was run, and how it did there (infinite if it diverged; smaller is better)."""

    algorithm: Any
    steps: int
    score: float
    status: str  # "done", or "diverged" if numbers were met that are not finite


def search(
    problem: Problem,
    candidates: Sequence[Algorithm],
    score: Callable[[PyTree, PyTree], float],
    *,
    steps: int,
    rungs: int = 2,
    lanes: int = 4,
    seed: int = 0,
    sampler: str | Sampler = "iid",
    announce: Callable[[str], None] = lambda text: None,
) -> list[Trial]:
    """Return all settings, best first. The last rung ends at iteration ``steps``, each rung at a quarter of the next.

    The candidates may differ in hyper-parameters that are real numbers: step sizes, momentum, eta.
    """
    candidates = one_program(candidates)
    lanes = min(lanes, len(candidates))
    parts = traced(problem, sampler)
    oracle = parts.oracle()
    left = list(range(len(candidates)))
    states = [first_state(problem, oracle, candidate, None, None) for candidate in candidates]
    reached = [(s, loop.fresh_memory(c, s), jnp.ones((), bool)) for c, s in zip(candidates, states, strict=True)]
    best: dict[int, Trial] = {}
    done = 0
    for rung in range(rungs):
        goal = max(1, round(steps / KEEP ** (rungs - 1 - rung)))
        groups = list(groups_of(lanes, left))
        tasks = [(*(_stack([row[i] for i in group]) for row in (candidates, reached)), goal - done) for group in groups]
        results = on_every_core(_advance, (), (parts, keys.root(seed)), tasks)
        for number, (group, after) in enumerate(zip(groups, results, strict=True), 1):
            for lane, i in enumerate(group):
                reached[i] = jax.tree.map(lambda leaf, lane=lane: leaf[lane], after)
            announce(f"rung {rung + 1} of {rungs}: {min(number * lanes, len(left))} of {len(left)} settings")
        for i in left:
            best[i] = _judge(candidates[i], goal, reached[i], score)
        done = goal
        left = sorted(left, key=lambda i: best[i].score)[: math.ceil(len(left) / KEEP)]
    return sorted(best.values(), key=lambda trial: (-trial.steps, trial.score))


def _judge(candidate: Any, steps: int, reached: tuple, score: Callable[[PyTree, PyTree], float]) -> Trial:
    state, _, finite = reached
    value = float(score(state.x, state.y)) if finite else math.inf
    fine = bool(finite) and bool(loop.state_is_finite(state))
    return Trial(candidate, steps, value if math.isfinite(value) else math.inf, "done" if fine else "diverged")


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


@loop.jit
def _advance(problem: Traced, stream: jax.Array, algorithms: Any, reached: tuple, steps: int) -> tuple:
    def one(algorithm: Algorithm, reached: tuple) -> tuple:
        state, memory, finite = reached
        state, memory, still = loop.repeat(problem, algorithm, stream, state, memory, steps)
        return state, memory, finite & still

    return jax.vmap(one)(algorithms, reached)


def toml(algorithm: Algorithm) -> str:
    """Return a setting as a TOML file that `bilax run` takes.

    >>> print(toml(settings.parse("aid-cg[alpha=0.5,N=3]")), end="")
    method = "aid-cg"
    <BLANKLINE>
    [parameters]
    alpha = 0.5
    beta = 0.1
    T = 10
    N = 3
    S = 64
    """
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.parameters(algorithm).items()]
    return "\n".join([f'method = "{settings.name_of(algorithm)}"', "", "[parameters]", *lines]) + "\n"


def grid(base: Algorithm, axes: Mapping[str, Sequence[float]]) -> list[Algorithm]:
    """Return a setting with every combination of the values of some of its hyper-parameters."""
    names = [field.name for field in dataclasses.fields(base)]  # type: ignore[arg-type]
    for name in axes:
        if name not in names:
            raise unknown(f"hyper-parameter of {settings.name_of(base)}", name, names)
    chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [dataclasses.replace(base, **values) for values in chosen]  # type: ignore[type-var]
