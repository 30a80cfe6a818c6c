"""The bilevel problem of a cleaner, solved: classifiers, confusion, penalty and weights."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax

from bilax.oracle import Counts
from bilax.problem import Problem
from bilax.results import History, Result
from bilax.running.solve import solve
from bilax.sklearn.crossfit import Bounded, Noisy, Regressions, Unseen, folds_of, polished, row_weights
from bilax.sklearn.design import Design
from bilax.sklearn.methods import adam, by_part, with_steps
from bilax.sklearn.sizes import columns_for, filled, rows_for, shares

LEARNABLE = {"confusion": 0.06, "penalty": 0.06, "weights": 0.06}  # with the rate of Adam for each
RIGHT = 0.9  # the chance, at the start, that a label is right
WEIGHT = 2.0  # the start of the weights, before the sigmoid
PENALTY = 10.0  # the start of the penalty, over the number of rows
MAIN = 512  # columns, at most, on which confusion and penalty are learned: the main directions
POLISH = 40  # steps on all rows and columns at the end
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
    shape, batch = Regressions(classes, folds), min(batch, rows_for(n))
    main = rows._replace(columns=rows.columns[:, -MAIN:])  # the last ones are the main ones
    problem = _problem(main, plan, shape, fold, held, batch, rng)
    outer = by_part({name: adam(LEARNABLE[name]) for name in parts})
    algorithm = with_steps(method, outer, 1 / (1 + plan.spread(MAIN) / batch), batch)
    best = _Best(shape, main.columns[held], rows.label[held])
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
    shape = replace(shape, of_all=True)
    data, metric = _inner_data(rows, plan, fold)
    d = rows.columns.shape[1]
    x = {**x, "metric": metric}
    V = polished(Noisy(shape), x, _with_all(V, shape, d, len(metric)), data, POLISH)
    chances = np.exp(np.asarray(shape.log_chances(V, data["columns"]), float))[:n]
    unseen = chances[np.arange(n), np.maximum(fold, 0)]
    unseen[held] = chances[held, :folds].mean(1)
    weights = np.ones(n)
    weights[~rows.trusted] = np.asarray(row_weights(x))[:n][~rows.trusted]
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
        classifiers=np.asarray(V, float)[:d].reshape(d, folds + 1, classes).transpose(1, 0, 2),
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
    inner, metric = _inner_data(rows, plan, fold)
    judged, given = np.flatnonzero(rows.trusted & ~held), np.flatnonzero(~rows.trusted)
    given = given if len(given) else judged  # all rows are trusted
    pairs = max(batch, rows_for(len(judged)), min(rows_for(len(given)), PAIRS))
    trusted, others = np.resize(rng.permutation(judged), pairs), np.resize(rng.permutation(given), pairs)
    outer = {name: inner[name][trusted] for name in ("columns", "label", "fold")}
    outer |= {f"given {name}": inner[name][others] for name in ("columns", "label", "fold")}
    confusion = np.full((classes, classes), np.log((1 - RIGHT) / (classes - 1)))
    np.fill_diagonal(confusion, np.log(RIGHT))
    bounds = np.log([0.01 / n, plan.largest])
    x0 = {
        "confusion": jnp.asarray(confusion, float),
        "penalty": jnp.asarray(min(np.log(PENALTY / n), bounds[1]), float),
        "weights": jnp.full(rows_for(n), WEIGHT, float),
        "metric": metric,
        "bounds": jnp.asarray(bounds, float),
    }
    y0 = jnp.zeros((len(metric), shape.count * classes), float)
    return Problem(Unseen(shape), Noisy(shape), outer, inner, x0=x0, y0=y0, project_x=Bounded())


def _inner_data(rows: Rows, plan: Design, fold: np.ndarray) -> tuple[dict[str, np.ndarray], jax.Array]:
    """Return the data of the inner problem, and the penalty of each of its columns relative to that of a feature."""
    n, d = rows.columns.shape
    room, wide = rows_for(n), columns_for(d, n)
    values = {"label": rows.label, "fold": fold, "trusted": rows.trusted, "row": np.arange(n, dtype=np.int32)}
    data = {name: filled(column, room) for name, column in values.items()}
    data |= {"columns": filled(rows.columns, room, wide), "share": shares(n)}
    return data, jnp.asarray(np.append(plan.metric[-d:], np.full(wide - d, 1 / plan.largest)), float)


def _with_all(V: jax.Array, shape: Regressions, d: int, wide: int) -> jax.Array:
    """Return where the last fits begin: at those of the main columns, that of all rows at their mean."""
    known = min(d, MAIN)
    of_folds = V[:known].reshape(known, shape.folds, shape.classes)
    every = jnp.concatenate([of_folds, of_folds.mean(1, keepdims=True)], axis=1).reshape(known, -1)
    return jnp.zeros((wide, every.shape[1]), V.dtype).at[d - known : d].set(every)


class _Best:
    """The state that was best on the rows held out; the last one if there are none."""

    def __init__(self, shape: Regressions, columns: np.ndarray, label: np.ndarray):
        self.shape, self.columns, self.label = shape, columns, label
        self.least, self.state = np.inf, (None, None)

    def look(self, x: Any, V: jax.Array) -> dict[str, float]:
        if not len(self.label):
            return {}
        scores = self.columns @ np.asarray(V)[: self.columns.shape[1]]
        scores = scores.reshape(len(scores), self.shape.count, self.shape.classes)
        loss = float(-np.take_along_axis(log_softmax(scores, axis=2), self.label[:, None, None], 2).mean())
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
