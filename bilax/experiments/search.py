"""Search a grid of settings: all of them by one compiled program, a few side by side, the best ones for longer.

A rung runs every remaining setting to the same iteration, then keeps the best quarter. The program has a fixed number
of lanes (`jax.vmap`), so that later rungs, with fewer settings, do not compile again.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax import settings
from bilax.algorithms.protocol import Algorithm
from bilax.errors import unknown
from bilax.hypergrad.auto_eta import largest_eigenvalue
from bilax.hyperparameters import names_of
from bilax.numerics.platforms import Jitted
from bilax.oracle import Traced, traced
from bilax.problem import Problem, reads_carried
from bilax.running import keeping, loop
from bilax.running.checks import first_state, starting_point
from bilax.running.inspection import Inspector
from bilax.running.iterate import iterate
from bilax.running.solve import solve
from bilax.running.sweep import groups_of, on_every_core, one_program
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.storage import checkpoints
from bilax.storage.files import said
from bilax.storage.remembering import digest_of
from bilax.types import PyTree

MOST = 10_000  # settings in a grid
FEW = 64  # samples in the batches on which the curvature at the start is measured
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
    score: Callable[..., float],
    *,
    steps: int,
    rungs: int = 2,
    lanes: int = 4,
    seeds: Sequence[int] = (0,),
    sampler: str | Sampler = "iid",
    announce: Callable[[str], None] = lambda text: None,
    checkpoint: Path | None = None,
) -> list[Trial]:
    """Return all settings, best first, by ``score(x, y)``, or ``score(x, y, carried)`` if the problem carries anything.

    The last rung ends at iteration ``steps``, each rung at a quarter of the next.

    The candidates may differ in hyper-parameters that are real numbers: step sizes, momentum, eta. Each runs with every
    seed, and its worst run counts: a setting that diverges for some batches is not a good one. In the folder
    ``checkpoint`` the search is kept as it goes: the same call again goes on.
    """
    candidates = one_program(candidates)
    lanes = min(lanes, len(candidates))
    parts = traced(problem, sampler)
    states = [first_state(problem, parts, candidate, None, None) for candidate in candidates]
    start = [
        (s, loop.fresh_memory(c, s, parts.carried), jnp.ones((), bool)) for c, s in zip(candidates, states, strict=True)
    ]
    reached = [list(start) for _ in seeds]
    identity = keeping.identity(candidates, seeds[0], sampler, parts, starting_point(problem, None, None))
    kept = _Kept(checkpoint, identity | {"steps": steps, "rungs": rungs, "lanes": lanes, "seeds": list(seeds)})
    reached, at = kept.load(reached)
    best = {int(i): Trial(candidates[int(i)], *facts) for i, facts in at["best"].items()}
    left, done = at["left"], at["done"]
    for rung in range(at["rung"], rungs):
        goal = max(1, round(steps / KEEP ** (rungs - 1 - rung)))
        groups = [(which, group) for which in range(len(seeds)) for group in groups_of(lanes, left)]
        first = at["groups"] if rung == at["rung"] else 0
        tasks = [
            (keys.root(seeds[s]), *(_stack([row[i] for i in group]) for row in (candidates, reached[s])), goal - done)
            for s, group in groups[first:]
        ]
        results = on_every_core(_advance, (), (parts,), tasks) if tasks else ()
        for number, ((s, group), after) in enumerate(zip(groups[first:], results, strict=True), first + 1):
            for lane, i in enumerate(group):
                reached[s][i] = jax.tree.map(lambda leaf, lane=lane: leaf[lane], after)
            announce(f"rung {rung + 1} of {rungs}: {len(left) * number // len(groups)} of {len(left)} settings")
            kept.save(reached, rung, number, left, done, best)
        for i in left:
            best[i] = max((_judge(candidates[i], goal, of[i], score) for of in reached), key=lambda trial: trial.score)
        done = goal
        left = sorted(left, key=lambda i: best[i].score)[: math.ceil(len(left) / KEEP)]
        kept.save(reached, rung + 1, 0, left, done, best)
    kept.remove()
    # One that diverged further on is behind one that did not and was not run as far.
    return sorted(best.values(), key=lambda trial: (math.isinf(trial.score), -trial.steps, trial.score))


class _Kept:
    """A search under way, on disk; nowhere without a folder."""

    def __init__(self, folder: Path | None, identity: dict[str, Any]):
        self.path = None if folder is None else folder / f"{digest_of(identity)}.bin"

    def load(self, reached: list[list[tuple]]) -> tuple[list[list[tuple]], dict[str, Any]]:
        start = {"rung": 0, "groups": 0, "left": list(range(len(reached[0]))), "done": 0, "best": {}}
        if self.path is None:
            return reached, start
        with said(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            leaves, facts = checkpoints.load(self.path)
        except (FileNotFoundError, checkpoints.Damaged):
            return reached, start
        found = checkpoints.like(reached, leaves)
        return (reached, start) if found is None else (found, facts)

    def save(self, reached: list, rung: int, groups: int, left: list[int], done: int, best: dict[int, Trial]) -> None:
        if self.path is not None:
            scores = {str(i): [trial.steps, trial.score, trial.status] for i, trial in best.items()}
            facts = {"rung": rung, "groups": groups, "left": left, "done": done, "best": scores}
            checkpoints.save(self.path, reached, facts)

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _judge(candidate: Any, steps: int, reached: tuple, score: Callable[..., float]) -> Trial:
    state, memory, finite = reached
    carried = () if memory.carried is None else (memory.carried,)
    value = float(score(state.x, state.y, *carried)) if finite else math.inf
    fine = bool(finite) and bool(loop.state_is_finite(state))
    return Trial(candidate, steps, value if math.isfinite(value) else math.inf, "done" if fine else "diverged")


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


@Jitted
def _advance(problem: Traced, stream: jax.Array, algorithms: Any, reached: tuple, steps: int) -> tuple:
    k = reached[0].k[0]  # all are there: with one k for all, they share their batches

    def one(algorithm: Algorithm, reached: tuple) -> tuple:
        state, memory, finite = reached
        state = state._replace(k=k) if hasattr(state, "_replace") else state
        state, memory, still = loop.repeat(problem, algorithm, stream, state, memory, steps)
        return state, memory, finite & still

    return jax.vmap(one)(algorithms, reached)


def pace(problem: Problem, algorithm: Any, sampler: str, seconds: float) -> float:
    """Return the seconds per step in the second half of a short run: in the first, eta=auto measures L most often."""
    options: dict[str, Any] = dict(sampler=sampler, time_limit=seconds, every_seconds=seconds / 10)
    rows = solve(problem, algorithm, steps=10**9, metrics=lambda x, y: {}, **options).history
    last, half = rows[-1], rows[len(rows) // 2 if len(rows) > 2 else 0]
    return (last["seconds"] - half["seconds"]) / (last["k"] - half["k"])


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


def measure_of(problem: Problem) -> Callable[..., dict[str, float]]:
    """Return what is measured of a problem: its losses on all data, and its own metrics."""
    losses = Inspector(traced(problem, "iid")).losses

    def measure(x: PyTree, y: PyTree, carried: PyTree = problem.carried) -> dict[str, float]:
        metrics: Any = problem.metrics or (lambda x, y: {})
        own = metrics(x, y, *((carried,) if reads_carried(metrics) else ()))
        return losses(Point(x, y), carried) | {name: float(value) for name, value in own.items()}

    return measure


class Point(NamedTuple):
    x: PyTree
    y: PyTree


INNER = (0.1, 0.3, 1.0, 3.0)  # times 1/L, L being the largest curvature of the inner loss at the start
OUTER = (0.3, 1.0, 3.0, 10.0, 30.0)  # how far an entry of x would come in all, if the first hypergradient went on


def default_axes(problem: Problem, base: Any, steps: int, sampler: str | Sampler) -> dict[str, list[float]]:
    """Return step sizes to search, of both levels, on the scales of the problem at its start."""
    outer, inner = names_of("outer_step", base), names_of("inner_step", base)
    x0, y0 = starting_point(problem, None, None)
    oracle = traced(problem, sampler).oracle()
    L = float(jax.jit(lambda x, y: largest_eigenvalue(oracle, keys.root(0), x, y, FEW)[0])(x0, y0))
    calm = dict.fromkeys(outer, 1e-12) | dict.fromkeys(inner, INNER[1] / L)
    norms = iterate(problem, dataclasses.replace(base, **calm), steps=10, sampler=sampler).info.norm_v
    length = math.sqrt(sum(leaf.size for leaf in jax.tree.leaves(x0)))
    first = length / (steps * max(float(norms[5:].mean()), 1e-30))
    scales = dict.fromkeys(outer, (OUTER, first)) | dict.fromkeys(inner, (INNER, 1 / L))
    return {name: [float(f"{value * scale:.2g}") for value in values] for name, (values, scale) in scales.items()}


def grid(base: Algorithm, axes: Mapping[str, Sequence[float]]) -> list[Algorithm]:
    """Return a setting with every combination of the values of some of its hyper-parameters."""
    names = [field.name for field in dataclasses.fields(base)]  # type: ignore[arg-type]
    for name in axes:
        if name not in names:
            raise unknown(f"hyper-parameter of {settings.name_of(base)}", name, names)
    points = math.prod(len(values) for values in axes.values())
    if points > MOST:
        raise ValueError(f"the grid makes {points:,} settings; at most {MOST:,} can be searched. Take fewer values.")
    chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [dataclasses.replace(base, **values) for values in chosen]  # type: ignore[type-var]
