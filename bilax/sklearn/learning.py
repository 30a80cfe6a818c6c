"""The bilevel problem of a cleaner, solved: classifiers, confusion, penalty and weights."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from bilax.oracle import Counts
from bilax.problem import Problem
from bilax.results import History, Result
from bilax.running.solve import solve
from bilax.sklearn.crossfit import Bounded, Noisy, Regressions, Unseen, folds_of, polished, row_weights
from bilax.sklearn.design import Design
from bilax.sklearn.methods import adam, by_part, with_steps

LEARNABLE = {"confusion": 0.06, "penalty": 0.06, "weights": 0.06}  # with the rate of Adam for each
RIGHT = 0.9  # the chance, at the start, that a label is right
WEIGHT = 2.0  # the start of the weights, before the sigmoid
PENALTY = 10.0  # the start of the penalty, over the number of rows
POLISH = 40  # steps on all rows at the end
LOOKS = 25  # at the rows held out, in a whole run
PATIENCE = 4  # looks without gain, after which the run ends
PAIRS = 4096  # rows of the outer problem, at least, if there are so many
FEWEST = 20  # trusted rows of which some can be held out


class Rows(NamedTuple):
    columns: np.ndarray
    label: np.ndarray  # numbered from 0
    trusted: np.ndarray


class Learned(NamedTuple):
    classifiers: np.ndarray  # (folds + 1, columns, classes), that of all rows last
    fold: np.ndarray
    unseen: np.ndarray  # chances of the classes, for each row by classifiers that have not seen it
    seen: np.ndarray  # by the last one
    confusion: np.ndarray
    weights: np.ndarray
    held: np.ndarray
    steps: int
    counts: Counts
    diagnostics: dict[str, Any]


def learn(
    rows: Rows,
    plan: Design,
    classes: int,
    rng: np.random.Generator,
    *,
    method: Any,
    steps: int,
    batch: int,
    folds: int,
    held_out: float,
    parts: tuple[str, ...],
    progress: bool | None,
    checkpoint_dir: Any,
) -> Learned:
    seed = int(rng.integers(2**31))
    n, trusted = len(rows.label), np.flatnonzero(rows.trusted)
    fold = np.empty(n, np.int32)
    for part in (rows.trusted, ~rows.trusted):
        fold[part] = folds_of(rng, rows.label[part], folds)
    held = np.zeros(n, bool)
    if len(trusted) >= FEWEST:
        held[rng.permutation(trusted)[: round(held_out * len(trusted))]] = True
    fold[held] = -1
    shape, batch = Regressions(classes, folds), min(batch, n)
    problem = _problem(rows, plan, shape, fold, held, batch, rng)
    outer = by_part({name: adam(LEARNABLE[name]) for name in parts})
    algorithm = with_steps(method, outer, 1 / (1 + plan.spread / batch), batch)
    best = _Best(shape, jnp.asarray(rows.columns[held]), rows.label[held])
    every = max(1, steps // LOOKS)
    settings: dict[str, Any] = {"seed": seed, "sampler": "blocks", "every": every, "metrics": best.look}
    kept: dict[str, Any] = {"stop": best.has_passed, "progress": progress, "checkpoint_dir": checkpoint_dir}
    result = solve(problem, algorithm, steps=steps, **settings, **kept)
    if result.status == "interrupted":
        raise KeyboardInterrupt(result.message)
    if result.status in ("diverged", "failed"):
        raise ValueError(f"the fit failed: {result.message}")
    k, (x, V) = best.of(result)
    if x is None:  # it was passed before the run was interrupted
        again = solve(problem, algorithm, steps=k, progress=False, **settings)
        x, V = again.x, again.y
    V = polished(problem.inner_loss, x, V, problem.inner_data, POLISH)
    chances = np.exp(np.asarray(shape.log_chances(V, problem.inner_data["columns"]), float))
    unseen = chances[np.arange(n), np.maximum(fold, 0)]
    unseen[held] = chances[held, :folds].mean(1)
    weights = np.ones(n)
    weights[~rows.trusted] = np.asarray(row_weights(x))[: n - len(trusted)]
    told = {
        "status": result.status,
        "message": result.message,
        "warnings": result.warnings,
        "steps": int(k),
        "held-out loss": [row.get("held_out") for row in result.history],
        "penalty": float(np.exp(x["penalty"])) * n,
        "trusted accuracy": float(np.mean(unseen[trusted].argmax(1) == rows.label[trusted])),
        "seconds": result.seconds,
        "compile seconds": result.compile_seconds,
    }
    return Learned(
        classifiers=np.asarray(V, float).reshape(len(V), folds + 1, classes).transpose(1, 0, 2),
        fold=fold,
        unseen=unseen,
        seen=chances[:, folds],
        confusion=softmax(np.asarray(x["confusion"], float), axis=1),
        weights=weights,
        held=held,
        steps=int(k),
        counts=result.counts,
        diagnostics=told,
    )


def _problem(
    rows: Rows,
    plan: Design,
    shape: Regressions,
    fold: np.ndarray,
    held: np.ndarray,
    batch: int,
    rng: np.random.Generator,
) -> Problem:
    n, classes = len(rows.label), shape.classes
    given = np.flatnonzero(~rows.trusted)
    number = np.zeros(n, np.int32)
    number[given] = np.arange(len(given))
    inner = {"columns": rows.columns, "label": rows.label, "fold": fold, "trusted": rows.trusted, "row": number}
    judged = np.flatnonzero(rows.trusted & ~held)
    given = given if len(given) else judged  # all rows are trusted
    pairs = max(batch, len(judged), min(len(given), PAIRS))
    trusted, others = np.resize(rng.permutation(judged), pairs), np.resize(rng.permutation(given), pairs)
    outer = {name: inner[name][trusted] for name in ("columns", "label", "fold")}
    outer |= {f"given {name}": inner[name][others] for name in ("columns", "label", "fold")}
    confusion = np.full((classes, classes), np.log((1 - RIGHT) / (classes - 1)))
    np.fill_diagonal(confusion, np.log(RIGHT))
    bounds = np.log([0.01 / n, plan.largest])
    x0 = {
        "confusion": jnp.asarray(confusion, float),
        "penalty": jnp.asarray(min(np.log(PENALTY / n), bounds[1]), float),
        "weights": jnp.full(max(1, int((~rows.trusted).sum())), WEIGHT, float),
        "metric": jnp.asarray(plan.metric, float),
        "bounds": jnp.asarray(bounds, float),
    }
    y0 = jnp.zeros((rows.columns.shape[1], (shape.folds + 1) * classes), float)
    return Problem(Unseen(shape), Noisy(shape), outer, inner, x0=x0, y0=y0, project_x=Bounded())


class _Best:
    """The state that was best on the rows held out; the last one if there are none."""

    def __init__(self, shape: Regressions, columns: jax.Array, label: np.ndarray):
        self.shape, self.columns, self.label = shape, columns, label
        self.least, self.state = np.inf, (None, None)

    def look(self, x: Any, V: jax.Array) -> dict[str, float]:
        if not len(self.label):
            return {}
        chances = np.asarray(self.shape.log_chances(V, self.columns))[:, : self.shape.folds]
        loss = float(-np.take_along_axis(chances, self.label[:, None, None], 2).mean())
        if loss < self.least:
            self.least, self.state = loss, (x, V)
        return {"held_out": loss}

    def has_passed(self, history: History) -> bool:
        return len(self.label) > 0 and len(history) - 1 - _best_of(history) >= PATIENCE

    def of(self, result: Result) -> tuple[int, Any]:
        if not len(self.label):
            return result.history[-1]["k"], (result.x, result.y)
        row = result.history[_best_of(result.history)]
        return row["k"], self.state if row["held_out"] == self.least else (None, None)


def _best_of(history: History) -> int:
    return int(np.argmin(history.column("held_out")))
