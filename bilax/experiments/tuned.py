"""The searches behind the tuned variants, the same effort for every method. What they found is in tuned.toml.

The paper's eta = 0.5 breaks its own condition eta < 1/L on MNIST, and its outer steps of 0.1 leave 20,000 weights where
they were. So eta is measured (eta=auto: 0.9/L), and the step sizes are searched over the paper's range, 0.001 to 1, and
beyond, by the validation loss: the outer objective, which needs no clean training labels.
"""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from bilax import settings
from bilax.experiments.execute import sampler_of
from bilax.experiments.specs import FAMILIES, UNTUNED, Family
from bilax.experiments.tuning import search
from bilax.problem import Problem
from bilax.results import environment
from bilax.runner import solve

GRIDS = {  # outer steps, inner steps: 24 settings per method
    "mnist": ((0.1, 3, 100, 3000), (0.001, 0.01, 0.03, 0.1, 0.3, 1)),
    "newsgroups-100": ((0.1, 3, 100, 3000), (1, 10, 30, 100, 300, 1000)),
    "newsgroups-1000": ((0.1, 3, 100, 3000), (1, 10, 30, 100, 300, 1000)),
}
LANES = 6
SECONDS = 3.0  # a setting that comes to the end gets as many steps as the method takes in this time
PILOT = 1.5


def run(
    out: Path,
    *,
    seconds: float = SECONDS,
    families: tuple[Family, ...] = FAMILIES,
    announce: Callable[[str], None] = lambda text: None,
) -> None:
    """Search for all families and write the winners, with how they were found, to a TOML file."""
    facts = environment()
    lines = [
        f"# Found by `bilax reproduce tuning` on {date.today()}, {facts['machine']['processor']}, by validation loss,",
        "# seed 0, eta=auto, a grid of 24 settings per method, of which a quarter",
        f"# went on to `steps` iterations (about {seconds:g} s of the method); `trials` has outer, inner, steps, loss.",
    ]
    for family in families:
        for method in dict.fromkeys(name for name in family.recipes if not name.startswith("VRBO-")):
            if method not in UNTUNED:
                announce(f"{family.name}: {method} ...")
                lines += ["", *_entry(family, method, seconds, announce)]
                out.write_text("\n".join(lines) + "\n")  # what was found so far is kept


def _entry(family: Family, method: str, seconds: float, announce: Callable[[str], None]) -> list[str]:
    problem = family.tuned_on.make(0).problem
    sampler = sampler_of(method)
    outer, inner = GRIDS[family.name]
    recipe = family.recipes[method]
    points: dict[str, tuple[float, float]] = {}
    candidates: list[Any] = []
    for x in outer:
        for y in inner:
            candidates.append(settings.parse(recipe(x, y, "auto")))
            points[settings.write(candidates[-1])] = (x, y)
    steps = max(4, round(seconds / _pace(problem, candidates[0], sampler)))

    def score(x: Any, y: Any) -> float:
        assert problem.metrics is not None
        return float(problem.metrics(x, y)["val_loss"])

    trials = search(problem, candidates, score, steps=steps, lanes=LANES, sampler=sampler)
    best = points[trials[0].setting]
    announce(f"{family.name}: {method}: outer {best[0]:g}, inner {best[1]:g}, validation loss {trials[0].score:.4g}")
    listed = ", ".join(
        f"[{points[t.setting][0]:g}, {points[t.setting][1]:g}, {t.steps}, {t.score:.4g}]" for t in trials
    )
    return [
        f'[{family.name}."{method}"]',
        f"outer = {best[0]:g}",
        f"inner = {best[1]:g}",
        f"steps = {steps}",
        f"trials = [{listed}]",
    ]


def _pace(problem: Problem, algorithm: Any, sampler: str) -> float:
    """Return the seconds per step, without the first half of a short run, where eta=auto measures L most often."""
    options: dict[str, Any] = dict(sampler=sampler, time_limit=PILOT, every_seconds=PILOT / 10, metrics=lambda x, y: {})
    rows = solve(problem, algorithm, steps=10**9, **options).history
    last, half = rows[-1], rows[len(rows) // 2 if len(rows) > 3 else 0]
    return (last["seconds"] - half["seconds"]) / (last["k"] - half["k"])
