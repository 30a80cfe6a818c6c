"""Table 1, measured: oracle calls to reach mean |grad Phi|^2 <= eps on the noisy quadratic, for every method.

The mean is the theory's: over the iterations so far, and over seeds. For each target, every method is run with the
same number of settings (a grid of step sizes), and the one that needs the fewest calls counts. Batch sizes that a
method's theory ties to eps are tied to it here too; where a method has several constants to tie them with, the ones
that need the fewest calls at the smallest target are taken at all of them. Seeds are added until the calls are known
within a tenth. The slope of log calls against log 1/eps is fitted, with an interval from a bootstrap over seeds.
"""

import json
import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax.algorithms import ALGORITHMS
from bilax.algorithms.about import Scaling
from bilax.oracle import KINDS, Counts, traced
from bilax.problems.quadratic import Quadratic, quadratic
from bilax.running import loop
from bilax.running.accounting import Account
from bilax.sampling import keys
from bilax.storage.remembering import remembered

TARGETS = (2.0, 0.6, 0.2, 0.06, 0.02)
SETTINGS = 16  # per method and target
SEEDS = (16, 256)  # at first, and at most
AT_ONCE = 5e7  # iterations in one program: what they tell is in memory, some 50 bytes each
KNOWN = 0.1  # seeds are added until half the interval of the calls is this part of them, at every target
HUGE = 1e300  # stands for what is not finite: no share of it, however small, reaches a target, and 0 of it is 0
TOLERANCE = 0.1  # a slope this close to the proven exponent counts as equal to it


class Row(NamedTuple):
    """One method: calls per target and kind, and the slopes."""

    method: str
    proven: float | None
    calls: dict[str, list[float]]  # kind -> calls at each target, NaN where it was not reached
    settings: list[dict[str, float] | None]  # the winner at each target
    slope: dict[str, float]
    interval: dict[str, tuple[float, float]]  # 95 %, over seeds
    seeds: int
    total: list[tuple[float, float]]  # 95 % interval of the calls of all kinds, at each target
    constants: dict[str, float]  # what was tied to eps, at the smallest target

    def verdict(self) -> str:
        """Compare the proven exponent with the slope of the kind of call that the method makes most."""
        kind = self.main_kind()
        low, high = self.interval[kind]
        if not math.isfinite(self.slope[kind]):
            return "not reached"
        if self.proven is None:
            return "nothing proven"
        if high < self.proven - TOLERANCE:
            return "smaller than proven"
        return "larger than proven" if low > self.proven + TOLERANCE else "as proven"

    def calls_of_all_kinds(self) -> list[float]:
        return [sum(at) for at in zip(*(self.calls[kind] for kind in KINDS), strict=True)]

    def main_kind(self) -> str:
        return max(KINDS, key=lambda kind: float(np.nansum(self.calls[kind])))


def problem() -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """The quadratic, and a start with |grad Phi|^2 = 4 and y at its solution, so that noise decides from there on."""
    q = quadratic(seed=0, noise=0.3)
    away = np.ones(q.x_star.size)
    away *= 2 / np.linalg.norm(q.gradient(q.x_star + away))
    x0 = q.x_star + away
    return q, x0, q.y_star(x0)


def measure(
    *,
    names: Sequence[str] | None = None,
    targets: Sequence[float] = TARGETS,
    seeds: int = SEEDS[1],
    scale: float = 1.0,
    announce: Callable[[str], None] = lambda text: None,
    keep: Path | None = None,
) -> list[Row]:
    """Measure the named methods (all by default) with at most so many seeds. ``scale`` shortens the runs.

    Rows are kept in the folder ``keep`` as they are measured, and not measured again.
    """
    rows = []
    for name, method in ALGORITHMS.items():
        if method.about.scaling is not None and (names is None or name in names):
            announce(f"{name} ...")
            steps = max(2, round(method.about.scaling.steps * scale))
            identity = {"table1": name, "targets": list(targets), "seeds": seeds, "steps": steps}
            row = remembered(keep, identity, lambda m=method, n=steps: _measure(m, targets, seeds, n)._asdict())
            rows.append(read(row))
    return rows


def read(row: dict[str, Any]) -> Row:
    """Return the row that was written as JSON."""
    pairs = {k: tuple(v) for k, v in row["interval"].items()}
    return Row(**row)._replace(interval=pairs, total=[tuple(pair) for pair in row["total"]])


def settings_of(scaling: Scaling) -> list[dict[str, float]]:
    """Return the settings that are tried, the same number for every method."""
    return [dict(zip(scaling.grid, values, strict=True)) for values in product(*scaling.grid.values())]


def _measure(method: type, targets: Sequence[float], most: int, steps: int) -> Row:
    scaling = method.about.scaling
    grid = settings_of(scaling)
    few = min(SEEDS[0], most)
    traces = _Traces(method, grid, steps)
    tied = _best_constants(scaling, traces, min(targets), few)
    seeds = few
    while True:
        found = _at_targets(traces, tied, targets, seeds)
        if seeds == most or found.half_width() <= KNOWN:
            break
        seeds = min(4 * seeds, most)
    slope, interval = {}, {}
    x = np.log(1 / np.asarray(targets))
    for kind in KINDS:
        slopes = np.array([_slope(x, row) for row in found.calls[kind]])
        slope[kind] = float(slopes[0])
        finite = slopes[np.isfinite(slopes)]
        low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) > 20 else (np.nan, np.nan)
        interval[kind] = (float(low), float(high))
    return Row(
        method=method.about.name,
        proven=scaling.exponent,
        calls={kind: found.calls[kind][0].tolist() for kind in KINDS},
        settings=[None if winner is None else grid[winner] for winner in found.winners],
        slope=slope,
        interval=interval,
        seeds=seeds,
        total=[(float(low), float(high)) for low, high in found.intervals()],
        constants=tied(min(targets)),
    )


class _Found(NamedTuple):
    """The calls of the best setting at each target: in the first row of all seeds, then of each bootstrap sample."""

    calls: dict[str, np.ndarray]  # kind -> (1 + bootstrap samples, targets), NaN where the target was not reached
    winners: list[int | None]

    def total(self) -> np.ndarray:
        return np.sum(list(self.calls.values()), axis=0)

    def intervals(self) -> np.ndarray:
        total = self.total()[1:]
        reached = np.isfinite(total).mean(axis=0) > 0.95
        bounds = [
            np.nanpercentile(row, [2.5, 97.5]) if known else (np.nan, np.nan)
            for row, known in zip(total.T, reached, strict=True)
        ]
        return np.array(bounds)

    def half_width(self) -> float:
        """The largest half of an interval, as a part of the calls, at the targets that were reached."""
        low, high = self.intervals().T
        parts = (high - low) / 2 / self.total()[0]
        return float(np.max(parts[np.isfinite(parts)], initial=0.0))


def _at_targets(traces: "_Traces", tied: Callable, targets: Sequence[float], seeds: int) -> _Found:
    rng = np.random.default_rng(0)
    draws = [np.arange(seeds), *rng.integers(seeds, size=(200, seeds))]
    shares = np.stack([np.bincount(drawn, minlength=seeds) / seeds for drawn in draws])
    calls = {kind: np.full((len(draws), len(targets)), np.nan) for kind in KINDS}
    winners: list[int | None] = []
    for t, eps in enumerate(targets):
        found = _fewest(traces.of(tied(eps), seeds), shares, eps)
        winners.append(None if found[0] is None else found[0].setting)
        for d, winner in enumerate(found):
            if winner is not None:
                for kind in KINDS:
                    calls[kind][d, t] = winner.calls[kind]
    return _Found(calls, winners)


def _best_constants(scaling: Scaling, traces: "_Traces", eps: float, seeds: int) -> Callable[[float], dict[str, Any]]:
    """Return how to tie batches to eps: the way that needs the fewest calls at the smallest target."""
    if not scaling.others:
        return scaling.fixed

    def calls(tied: Callable) -> float:
        (winner,) = _fewest(traces.of(tied(eps), seeds), np.full((1, seeds), 1 / seeds), eps)
        return math.inf if winner is None else sum(winner.calls.values())

    return min((scaling.fixed, *scaling.others), key=calls)


class _Traces:
    """Traces of one method as they are asked for, each seed run once."""

    def __init__(self, method: type, grid: list[dict[str, float]], steps: int):
        self._method, self._grid, self._steps = method, grid, steps
        self._known: dict[str, _Trace] = {}

    def of(self, fixed: dict[str, Any], seeds: int) -> "_Trace":
        known = self._known.get(repr(fixed))
        have = 0 if known is None else known.mean.shape[1]
        together = max(SEEDS[0], int(AT_ONCE / len(self._grid) / self._steps))
        for first in range(have, seeds, together):
            some = range(first, min(first + together, seeds))
            new = _trace(self._method, fixed, self._grid, some, self._steps)
            known = self._known[repr(fixed)] = new if known is None else known.joined(new)
        assert known is not None
        return known


class _Trace(NamedTuple):
    mean: np.ndarray  # (settings, seeds, iterations kept): |grad Phi|^2, averaged over the iterations so far
    extra: dict[str, np.ndarray]  # calls beyond the declared cost, summed over the iterations so far
    declared: dict[str, np.ndarray]  # (iterations kept,): calls of the declared cost, summed likewise

    def joined(self, other: "_Trace") -> "_Trace":
        """The same with the seeds of both."""
        extra = {kind: np.concatenate([self.extra[kind], other.extra[kind]], axis=1) for kind in KINDS}
        return _Trace(np.concatenate([self.mean, other.mean], axis=1), extra, self.declared)


class _Winner(NamedTuple):
    setting: int
    calls: dict[str, float]


def _trace(method: type, fixed: dict[str, Any], grid: list[dict[str, float]], seeds: range, steps: int) -> _Trace:
    """Run all settings and seeds as one compiled program."""
    q, x0, y0 = problem()
    hessian = jnp.asarray(np.stack([q.gradient(q.x_star + e) for e in np.eye(x0.size)]))
    parts, oracle = traced(q.problem, method.about.scaling.sampler), traced(q.problem, "iid").oracle()
    stacked = {name: jnp.array([setting[name] for setting in grid]) for name in grid[0]}
    x_star, start = jnp.asarray(q.x_star), (jnp.asarray(x0), jnp.asarray(y0))

    def squared_gradient(state):
        gradient = hessian @ (state.x - x_star)
        return gradient @ gradient

    def one(values, seed):
        algorithm = method(**fixed, **values)
        first = algorithm.init(oracle, *start)
        _, infos, norms = loop.record(parts, algorithm, keys.root(seed), first, steps, squared_gradient)
        return norms, infos.calls

    over_seeds = jax.vmap(one, (None, 0))
    norms, calls = jax.jit(jax.vmap(over_seeds, (0, None)))(stacked, jnp.arange(seeds.start, seeds.stop))
    kept = np.unique(np.geomspace(1, steps, min(steps, 2000)).round().astype(int)) - 1  # each within 1 % of the next
    account = Account(method(**fixed, **grid[0]), parts)
    setup = method.init_cost if hasattr(method, "init_cost") else None
    before = setup(method(**fixed, **grid[0]), oracle) if setup else Counts()
    declared = [before + account.between(0, k + 1) for k in kept.tolist()]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (np.cumsum(np.asarray(norms, np.float64), axis=-1) / np.arange(1, steps + 1))[..., kept]
    extra = {kind: np.asarray(getattr(calls, kind), np.int64) for kind in KINDS}
    return _Trace(
        np.nan_to_num(mean, nan=HUGE, posinf=HUGE),
        {kind: np.cumsum(n, axis=-1)[..., kept] for kind, n in extra.items()},
        {kind: np.array([getattr(c, kind) for c in declared]) for kind in KINDS},
    )


def _fewest(trace: _Trace, shares: np.ndarray, eps: float) -> list[_Winner | None]:
    """Return for each row of shares, the weights of the seeds, the setting that gets the mean to eps with the fewest
    calls."""
    best: list[_Winner | None] = [None] * len(shares)
    fewest = np.full(len(shares), math.inf)
    seeds = shares.shape[1]
    for setting, mean in enumerate(trace.mean[:, :seeds]):
        below = shares @ mean <= eps
        for d in np.flatnonzero(below.any(axis=1)):
            k = int(below[d].argmax())
            calls = {
                kind: float(trace.declared[kind][k]) + float(shares[d] @ extra[setting, :seeds, k])
                for kind, extra in trace.extra.items()
            }
            if sum(calls.values()) < fewest[d]:
                best[d], fewest[d] = _Winner(setting, calls), sum(calls.values())
    return best


def _slope(x: np.ndarray, calls: np.ndarray) -> float:
    reached = np.isfinite(calls) & (calls > 0)
    return float(np.polyfit(x[reached], np.log(calls[reached]), 1)[0]) if reached.sum() >= 3 else math.nan


def markdown(rows: Sequence[Row], targets: Sequence[float] = TARGETS) -> str:
    """Return the table: the slope of the calls beside the proven exponent, and all calls at every target."""
    lines = [
        "| method | seeds | slope | proven | verdict | " + " | ".join(f"calls at {eps:g}" for eps in targets) + " |",
        "| --- |" + " --- |" * (4 + len(targets)),
    ]
    for row in rows:
        kind = row.main_kind()
        low, high = row.interval[kind]
        slope = f"{row.slope[kind]:.2f} ({low:.2f} to {high:.2f})" if math.isfinite(row.slope[kind]) else ""
        cells = [
            f"{_short(total)} ({_short(low)} to {_short(high)})" if math.isfinite(total) else "not reached"
            for total, (low, high) in zip(row.calls_of_all_kinds(), row.total, strict=True)
        ]
        proven = "" if row.proven is None else f"{row.proven:g}"
        lines.append("| " + " | ".join([row.method, str(row.seeds), slope, proven, row.verdict(), *cells]) + " |")
    return "\n".join(lines)


def _short(calls: float) -> str:
    return f"{float(f'{calls:.2g}'):,.0f}" if calls < 1e5 else f"{calls:.1e}".replace("e+0", "e")


def fewer(rows: Sequence[Row], targets: Sequence[float] = TARGETS) -> list[tuple[float, list[str]]]:
    """Return for each target the methods of which no other has certainly fewer calls: the intervals do not part."""
    found = []
    for t, eps in enumerate(targets):
        known = {row.method: row.total[t] for row in rows if math.isfinite(row.total[t][0])}
        least = min((high for _, high in known.values()), default=math.nan)
        found.append((eps, [name for name, (low, _) in known.items() if low <= least]))
    return found


def written(rows: Sequence[Row], commit: str | None) -> str:
    """Return the rows as JSON, with the commit that measured them; `read` reads one of them."""
    return json.dumps({"commit": commit, "targets": TARGETS, "rows": [row._asdict() for row in rows]}, indent=1)
