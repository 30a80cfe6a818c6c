"""The benchmark's searches and runs.

Every method is searched over the same 25 settings of a problem with the same effort, by Phi at its last x, or, where
one exact value takes seconds, by the outer loss at its last x and y; the worst of three runs counts. (The outer loss
alone misleads: far from the inner solution it can lie below the lowest Phi.) Then it runs with several seeds, which
decide the batches alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax

from bilax.benchmark.methods import GRIDS, METHODS, sampler_of
from bilax.experiments.jobs import FOREVER, Job
from bilax.experiments.search import pace, search
from bilax.experiments.tasks import SLOWLY_MEASURED, Task
from bilax.problem import Problem
from bilax.storage.remembering import remembered

SEEDS = 10
SEARCHED_WITH = (0, 1, 2)  # seeds, of which the worst counts
BUDGET = 5.0  # seconds per run
PILOT, PILOTS = 1.0, 3  # seconds of a short run that measures the pace, and how many there are: the fastest counts
TINY = 1e-6  # steps of that run
BEYOND = 1.5  # times as far as a run is expected to come, so that none leaves what was searched
RUNGS, LANES = 3, 5  # 25 settings to a sixteenth of the horizon, 7 to a quarter, 2 to the end

Announce = Callable[[str], None]
Steps = Mapping[str, Sequence[float]]  # method -> inner and outer step, and the iteration at which its search ended


def searched(
    task: Task, methods: Sequence[str], keep: Path, *, scale: float = 1.0, announce: Announce = lambda text: None
) -> Steps:
    """Return the best steps of every method, and how far they were searched; it is remembered in a folder."""
    found: dict[str, Sequence[float]] = {}
    for method in methods:
        identity = {
            "task": task.name,
            "method": method,
            "scale": scale,
            "by": _judged_by(task),
            "seeds": SEARCHED_WITH,
            "beyond": BEYOND,
            "pilots": PILOTS,
        }
        inner, outer, most = remembered(keep, identity, lambda m=method: _search(task, m, scale))
        announce(f"{task.title}: {method}: inner step {inner:g}, outer step {outer:g}, searched to {most:,}")
        found[method] = (inner, outer, most)
    return found


def _search(task: Task, method: str, scale: float) -> list[float]:
    problem, sampler = task.load(0).problem, sampler_of(method)
    points = [(inner, inner / ratio) for inner, ratio in product(*GRIDS[task.data])]
    candidates = [METHODS[method](outer, inner) for inner, outer in points]
    still = METHODS[method](TINY, TINY)  # a step takes as long, and the pilot cannot diverge
    fastest = min(pace(problem, still, sampler, PILOT * scale) for _ in range(PILOTS))  # not what the machine did else
    steps = max(4, round(BEYOND * scale * BUDGET / fastest))
    outer_loss = jax.jit(lambda x, y: problem.outer_loss(x, y, problem.outer_data))
    score = outer_loss if _judged_by(task) == "outer loss" else _gap_of(problem)
    options: dict[str, Any] = dict(steps=steps, rungs=RUNGS, lanes=LANES, sampler=sampler)
    trials = search(problem, candidates, score, seeds=SEARCHED_WITH, **options)
    return [*points[candidates.index(trials[0].algorithm)], steps]


def _judged_by(task: Task) -> str:
    return "outer loss" if task.data in SLOWLY_MEASURED else "Phi"


def _gap_of(problem: Problem) -> Callable[[Any, Any], float]:
    metrics = problem.metrics
    assert metrics is not None
    return lambda x, y: metrics(x, y)["gap"]


def jobs(task: Task, variant: str, steps: Steps, seeds: Sequence[int], budget: float) -> Iterator[Job]:
    """Return the runs; none goes further than its steps were searched, where other steps might be better."""
    for seed in seeds:
        for method, (inner, outer, *most) in steps.items():
            setting = METHODS[method](outer, inner)
            yield Job(
                task, setting, seed, sampler_of(method), int(most[0]) if most else FOREVER, budget, method, variant
            )
