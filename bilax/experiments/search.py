"""Search a grid of settings: all of them in one compiled program, a few side by side, the best ones further.

A rung runs every remaining setting to the same iteration, then keeps the best quarter. The program has a fixed number
of lanes (`jax.vmap`), so that later rungs, with fewer settings, do not compile again.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax import keys, loop, settings
from bilax.algorithms.protocol import Algorithm
from bilax.oracle import from_parts
from bilax.problem import Functions, Problem
from bilax.sampler import Sampler, resolve
from bilax.sweeps import groups_of, on_every_core, one_program
from bilax.types import PyTree

KEEP = 4  # one in so many survives a rung


class Trial(NamedTuple):
    """A setting, how far it was run, and how it did there (infinite if it diverged; smaller is better)."""

    setting: str
    steps: int
    score: float


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
    """Return all settings, best first. The last rung takes ``steps`` iterations, each one before a quarter of them.

    The candidates may differ in hyper-parameters that are real numbers: step sizes, momentum, eta.
    """
    candidates = one_program(candidates)
    lanes = min(lanes, len(candidates))
    sampler, given = resolve(sampler), (problem.outer_data, problem.inner_data, keys.root(seed))
    left = list(range(len(candidates)))
    states = [candidate.init(problem.x0, problem.y0) for candidate in candidates]
    best: dict[int, Trial] = {}
    done = 0
    for rung in range(rungs):
        goal = max(1, round(steps / KEEP ** (rungs - 1 - rung)))
        groups = list(groups_of(lanes, left))
        tasks = [(*(_stack([row[i] for i in group]) for row in (candidates, states)), goal - done) for group in groups]
        reached = on_every_core(_advance, (problem.functions, sampler), given, tasks)
        for number, (group, after) in enumerate(zip(groups, reached, strict=True), 1):
            for lane, i in enumerate(group):
                states[i] = jax.tree.map(lambda leaf, lane=lane: leaf[lane], after)
            announce(f"rung {rung + 1} of {rungs}: {min(number * lanes, len(left))} of {len(left)} settings")
        for i in left:
            value = float(score(states[i].x, states[i].y))
            best[i] = Trial(settings.write(candidates[i]), goal, value if math.isfinite(value) else math.inf)
        done = goal
        left = sorted(left, key=lambda i: best[i].score)[: math.ceil(len(left) / KEEP)]
    return sorted(best.values(), key=lambda trial: (-trial.steps, trial.score))


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


@partial(loop.jit, static_argnums=(0, 1))
def _advance(
    functions: Functions,
    sampler: Sampler,
    outer_data: PyTree,
    inner_data: PyTree,
    stream: jax.Array,
    algorithms: Any,
    states: Any,
    steps: int,
) -> Any:
    oracle = from_parts(functions, outer_data, inner_data, sampler)

    def one(algorithm: Algorithm, state: Any) -> Any:
        def step(_: Any, s: Any) -> Any:
            return algorithm.step(oracle, keys.at(stream, s.k), s)[0]

        return jax.lax.fori_loop(0, steps, step, state)

    return jax.vmap(one)(algorithms, states)


def toml(setting: str) -> str:
    """Return a setting as a TOML file that `bilax run` takes.

    >>> print(toml("aid-cg[alpha=0.5,beta=0.1,T=10,N=3,S=64]"), end="")
    method = "aid-cg"
    <BLANKLINE>
    [parameters]
    alpha = 0.5
    beta = 0.1
    T = 10
    N = 3
    S = 64
    """
    name, inside = setting.rstrip("]").split("[")
    values = (item.split("=") for item in inside.split(","))
    lines = [f"{key} = {json.dumps(value) if value == 'auto' else value.lower()}" for key, value in values]
    return "\n".join([f'method = "{name}"', "", "[parameters]", *lines]) + "\n"


def grid(text: str, axes: dict[str, Sequence[float]]) -> list[Algorithm]:
    """Return a setting with every combination of the values of some of its hyper-parameters."""
    base = settings.parse(text)
    name, given = settings.write(base).rstrip("]").split("[")
    kept = dict(item.split("=") for item in given.split(","))
    values = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, len(axes)) if axes else [[]]
    chosen = [kept | {key: f"{value:.10g}" for key, value in zip(axes, row, strict=True)} for row in values]
    return [settings.parse(f"{name}[{','.join(f'{k}={v}' for k, v in c.items())}]") for c in chosen]
