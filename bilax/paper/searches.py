"""The searches behind the tuned variants, the same effort for every method. What they found is in tuned.toml.

The paper's eta = 0.5 breaks its own condition eta < 1/L on MNIST, and its outer steps of 0.1 leave 20,000 weights where
they were. So eta is measured (eta=auto: 0.9/L), and the step sizes are searched around the paper's and far beyond, by
the validation loss: the outer objective, which needs no clean training labels. Of three runs, which differ in their
batches, the worst counts. The horizon is that of a figure's run.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from bilax.experiments.search import pace, search
from bilax.paper.figures import SEARCHED, UNTUNED, Family, sampler_of
from bilax.storage.environment import commit
from bilax.storage.files import write_text
from bilax.storage.remembering import remembered

GRIDS = {  # outer steps, inner steps: 25 settings per method
    "mnist": ((0.1, 10, 300, 3000, 30_000), (0.001, 0.01, 0.03, 0.1, 0.3)),
    "newsgroups": ((0.1, 10, 300, 3000, 30_000), (10, 30, 100, 300, 1000)),
}
RUNGS, LANES = 3, 7  # 25 settings run to a sixteenth of the horizon, 7 to a quarter, 2 to the end
PILOT = 2.0  # seconds of the short run that measures the pace
SEARCHED_WITH = (0, 1, 2)  # seeds, of which the worst counts


def search_all(
    out: Path,
    *,
    scale: float = 1.0,
    families: tuple[Family, ...] = SEARCHED,
    announce: Callable[[str], None] = lambda text: None,
) -> None:
    """Search for all families and write the winners, with how they were found, to a TOML file."""
    lines = [
        "# Found by `bilax reproduce tuning`, by validation loss (the worst of `seeds` runs), eta=auto, a grid of 25",
        "# settings per method, of which the two best went to `steps` iterations: about as many as fit into the",
        "# budget of a figure's run. `trials` has outer step, inner step, iterations, loss.",
    ]
    for family in families:
        for method in dict.fromkeys(name for name in family.recipes if not name.startswith("VRBO-")):
            if method not in UNTUNED:
                announce(f"{family.search}: {method} ...")
                identity = {"family": family.search, "method": method, "scale": scale, "seeds": SEARCHED_WITH}
                entry = remembered(
                    out.parent / ".tuning", identity, lambda f=family, m=method: _entry(f, m, scale, announce)
                )
                lines += ["", *entry]
                write_text(out, "\n".join(lines) + "\n")  # what was found so far is kept


def _entry(family: Family, method: str, scale: float, announce: Callable[[str], None]) -> list[str]:
    problem = family.tuned_on.load(0).problem
    sampler = sampler_of(method)
    points = list(product(*GRIDS[family.search]))
    candidates = [family.recipes[method](x, y, "auto") for x, y in points]
    steps = max(4, round(scale * family.budget / pace(problem, candidates[0], sampler, PILOT)))

    def score(x: Any, y: Any) -> float:
        assert problem.metrics is not None
        return float(problem.metrics(x, y)["val_loss"])

    options: dict[str, Any] = dict(steps=steps, rungs=RUNGS, lanes=LANES, sampler=sampler)
    seeds = (0,) if sampler == "full" else SEARCHED_WITH  # without batches, all runs are the same
    trials = search(problem, candidates, score, seeds=seeds, **options)
    tried = [(*points[candidates.index(t.algorithm)], t.steps, t.score) for t in trials]
    outer, inner, _, loss = tried[0]
    announce(f"{family.search}: {method}: outer {outer:g}, inner {inner:g}, validation loss {loss:.4g}")
    listed = ", ".join(f"[{x:g}, {y:g}, {k}, {score:.4g}]" for x, y, k, score in tried)
    return [
        f'[{family.search}."{method}"]',
        f"outer = {outer:g}",
        f"inner = {inner:g}",
        f"steps = {steps}",
        f"seeds = {len(seeds)}",
        f'commit = "{commit()}"',
        f"trials = [{listed}]",
    ]
