"""The benchmark's searches and runs, and the ranking that they support.

Every method is searched over the same 25 settings of a problem with the same effort, by Phi at its last x, or, where
one exact value takes seconds, by the outer loss at its last x and y. (The outer loss alone misleads: far from the inner
solution it can lie below the lowest Phi.) Then it runs with several seeds, which decide the batches alone.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bilax.benchmark.methods import GRIDS, METHODS, TASKS, sampler_of
from bilax.experiments.jobs import FOREVER, Job
from bilax.experiments.pages import StoredRun, stored_runs
from bilax.experiments.search import pace, search
from bilax.experiments.tasks import SLOWLY_MEASURED, Task
from bilax.problem import Problem
from bilax.storage.remembering import remembered
from bilax.storage.runs import read_rows

SEEDS = 10
BUDGETS = {"simulated": 5.0, "ijcnn1": 5.0, "covtype": 10.0, "mnist-replaced": 10.0}  # seconds per run
PILOT = 1.0  # seconds of the short run that measures the pace
RUNGS, LANES = 3, 5  # 25 settings to a sixteenth of the horizon, 7 to a quarter, 2 to the end
BAND = (20, 80)  # per cent

Announce = Callable[[str], None]
Steps = dict[str, tuple[float, float]]  # method -> inner and outer step


def searched(
    task: Task, methods: Sequence[str], keep: Path, *, scale: float = 1.0, announce: Announce = lambda text: None
) -> Steps:
    """Return the best steps of every method; what was found is remembered in a folder."""
    found: Steps = {}
    for method in methods:
        identity = {"task": task.name, "method": method, "scale": scale, "by": _judged_by(task)}
        inner, outer = remembered(keep, identity, lambda m=method: _search(task, m, scale))
        announce(f"{task.title}: {method}: inner step {inner:g}, outer step {outer:g}")
        found[method] = (inner, outer)
    return found


def _search(task: Task, method: str, scale: float) -> list[float]:
    problem, sampler = task.load(0).problem, sampler_of(method)
    points = [(inner, inner / ratio) for inner, ratio in product(*GRIDS[task.data])]
    candidates = [METHODS[method](outer, inner) for inner, outer in points]
    steps = max(4, round(scale * BUDGETS[task.data] / pace(problem, candidates[0], sampler, PILOT * scale)))
    outer_loss = jax.jit(lambda x, y: problem.outer_loss(x, y, problem.outer_data))
    score = outer_loss if _judged_by(task) == "outer loss" else _gap_of(problem)
    trials = search(problem, candidates, score, steps=steps, rungs=RUNGS, lanes=LANES, sampler=sampler)
    return list(points[candidates.index(trials[0].algorithm)])


def _judged_by(task: Task) -> str:
    return "outer loss" if task.data in SLOWLY_MEASURED else "Phi"


def _gap_of(problem: Problem) -> Callable[[Any, Any], float]:
    metrics = problem.metrics
    assert metrics is not None
    return lambda x, y: metrics(x, y)["gap"]


def jobs(task: Task, variant: str, steps: Steps, seeds: Sequence[int], budget: float) -> Iterator[Job]:
    for seed in seeds:
        for method, (inner, outer) in steps.items():
            setting = METHODS[method](outer, inner)
            yield Job(task, setting, seed, sampler_of(method), FOREVER, budget, method, variant)


class Place(NamedTuple):
    """How a method ended on a problem: the median over seeds, its band, and the places that the bands leave open."""

    method: str
    median: float
    low: float
    high: float
    first: int  # place, at best
    last: int  # and at worst
    seeds: int


def ranking(runs: Sequence[StoredRun], metric: str = "gap") -> list[Place]:
    """Return the methods, best median first. One is before another for certain only where their bands part."""
    ends: dict[str, list[float]] = {}
    for run in runs:
        rows = read_rows(run.folder)
        value = rows[-1].get(metric) if rows and run.facts["status"] not in ("diverged", "failed") else None
        ends.setdefault(run.facts["method"], []).append(np.inf if value is None else float(value))
    bands = {}
    for method, values in ends.items():
        low, middle, high = np.percentile(values, (BAND[0], 50, BAND[1]), method="nearest")
        bands[method] = (float(middle), float(low), float(high), len(values))
    places = []
    for method, (middle, low, high, seeds) in sorted(bands.items(), key=lambda item: item[1][0]):
        others = [band for name, band in bands.items() if name != method]
        before = sum(other[2] < low for other in others)
        behind = sum(other[1] > high for other in others)
        places.append(Place(method, middle, low, high, 1 + before, len(bands) - behind, seeds))
    return places


def markdown(task: str, places: Sequence[Place]) -> str:
    """Return a ranking as a table."""
    lines = [f"**{task}**", "", "| place | method | Phi - Phi* (median) | 20 to 80 % | seeds |", "| --- " * 5 + "|"]
    for place in places:
        where = f"{place.first}" if place.first == place.last else f"{place.first} to {place.last}"
        middle = "diverged, or not measured" if np.isinf(place.median) else f"{place.median:.3g}"
        band = "" if np.isinf(place.median) else f"{place.low:.3g} to {place.high:.3g}"
        lines.append(f"| {where} | {place.method} | {middle} | {band} | {place.seeds} |")
    return "\n".join(lines)


def by_problem(runs: Sequence[StoredRun], variant: str) -> dict[str, list[StoredRun]]:
    """Return the benchmark's runs in a folder, problem by problem."""
    names = [task.name for task in TASKS]
    mine = [run for run in runs if run.facts["task"] in names and run.kind == variant]
    return {name: some for name in names if (some := [run for run in mine if run.facts["task"] == name])}


def told(folder: Path) -> str:
    """Return all rankings of a folder as Markdown."""
    parts = []
    for variant in ("searched", "published"):
        for some in by_problem(stored_runs(folder), variant).values():
            seconds = some[0].facts["budget"]
            parts.append(markdown(f"{some[0].facts['title']}, {variant} steps, {seconds:g} s", ranking(some)))
    return "\n\n".join(parts) + "\n"
