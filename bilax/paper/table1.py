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
FITTED = 0.6  # slopes are fitted from here on: a larger target is reached in the first few steps, before noise counts
SETTINGS = 16  # per method and target
SEEDS = (16, 256)  # at first, and at most
AT_ONCE = 5e7  # iterations in one program: what they tell is in memory, some 50 bytes each
CLOSE = 1.5  # settings that need at most so many times the calls of the best are run with more seeds
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
    few = min(SEEDS[0], most)
    traces = _Traces(method, settings_of(scaling), steps)
    tied = _best_constants(scaling, traces, min(targets), few)
    seeds = few
    while True:
        found = _at_targets(traces, tied, targets, seeds)
        if seeds == most or found.half_width() <= KNOWN:
            break
        traces.narrow(*_promising(traces, tied, targets, seeds))
        seeds = min(4 * seeds, most)
    slope, interval = {}, {}
    x = np.log(1 / np.asarray(targets))
    small = np.asarray(targets) <= FITTED
    fitted = small if small.sum() >= 3 else np.ones(len(targets), bool)
    for kind in KINDS:
        slopes = np.array([_slope(x[fitted], row[fitted]) for row in found.calls[kind]])
        slope[kind] = float(slopes[0])
        finite = slopes[np.isfinite(slopes)]
        low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) > 20 else (np.nan, np.nan)
        interval[kind] = (float(low), float(high))
    return Row(
        method=method.about.name,
        proven=scaling.exponent,
        calls={kind: found.calls[kind][0].tolist() for kind in KINDS},
        settings=[None if winner is None else traces.grid[winner] for winner in found.winners],
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
    shares = _shares(seeds)
    calls = {kind: np.full((len(shares), len(targets)), np.nan) for kind in KINDS}
    winners: list[int | None] = []
    for t, eps in enumerate(targets):
        found = _fewest(traces.of(tied(eps), seeds), shares, eps)
        winners.append(None if found[0] is None else found[0].setting)
        for d, winner in enumerate(found):
            if winner is not None:
                for kind in KINDS:
                    calls[kind][d, t] = winner.calls[kind]
    return _Found(calls, winners)


def _shares(seeds: int) -> np.ndarray:
    """Return the weights of the seeds: all alike, then as often as each is in a bootstrap sample."""
    drawn = np.random.default_rng(0).integers(seeds, size=(200, seeds))
    return np.stack([np.bincount(row, minlength=seeds) / seeds for row in (np.arange(seeds), *drawn)])


def _promising(traces: "_Traces", tied: Callable, targets: Sequence[float], seeds: int) -> tuple[list[int], int]:
    """Return the settings that are among the best at some target, for some sample of the seeds, and twice the steps
    that the best of them need: more seeds of the others would not change the table."""
    among, steps = np.zeros(len(traces.grid), bool), 0
    for eps in targets:
        hits, calls = _hits(traces.of(tied(eps), seeds), _shares(seeds), eps)
        best, winners = calls.min(axis=0), calls.argmin(axis=0)
        if np.isinf(best).any():  # not always reached: anything may help
            return list(range(len(traces.grid))), traces.steps
        among |= (calls <= CLOSE * best).any(axis=1)
        steps = max(steps, int(traces.kept[np.take_along_axis(hits, winners[None], axis=0)].max()) + 1)
    return np.flatnonzero(among).tolist(), 2 * steps


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
        self._method, self.grid, self.steps = method, grid, steps
        self.kept = (
            np.unique(np.geomspace(1, steps, min(steps, 2000)).round().astype(int)) - 1
        )  # within 1 % of the next
        self._known: dict[str, _Trace] = {}

    def of(self, fixed: dict[str, Any], seeds: int) -> "_Trace":
        known = self._known.get(repr(fixed))
        have = 0 if known is None else known.mean.shape[1]
        together = max(SEEDS[0], int(AT_ONCE / len(self.grid) / self.steps))
        for first in range(have, seeds, together):
            some = range(first, min(first + together, seeds))
            new = _trace(self._method, fixed, self.grid, some, self.steps, self.kept)
            known = self._known[repr(fixed)] = new if known is None else known.joined(new)
        assert known is not None
        return known

    def narrow(self, settings: list[int], steps: int) -> None:
        """Go on with these settings alone, and with no more steps than these."""
        self.grid = [self.grid[i] for i in settings]
        self.steps = min(self.steps, steps)
        self.kept = self.kept[self.kept < self.steps]
        self._known = {name: trace.cut(settings, len(self.kept)) for name, trace in self._known.items()}


class _Trace(NamedTuple):
    mean: np.ndarray  # (settings, seeds, iterations kept): |grad Phi|^2, averaged over the iterations so far
    extra: dict[str, np.ndarray]  # calls beyond the declared cost, summed over the iterations so far
    declared: dict[str, np.ndarray]  # (iterations kept,): calls of the declared cost, summed likewise

    def joined(self, other: "_Trace") -> "_Trace":
        """The same with the seeds of both."""
        extra = {kind: np.concatenate([self.extra[kind], other.extra[kind]], axis=1) for kind in KINDS}
        return _Trace(np.concatenate([self.mean, other.mean], axis=1), extra, self.declared)

    def cut(self, settings: list[int], kept: int) -> "_Trace":
        """The same with some settings, and the first iterations, alone."""
        extra = {kind: extra[settings, :, :kept] for kind, extra in self.extra.items()}
        declared = {kind: declared[:kept] for kind, declared in self.declared.items()}
        return _Trace(self.mean[settings, :, :kept], extra, declared)


class _Winner(NamedTuple):
    setting: int
    calls: dict[str, float]


def _trace(
    method: type, fixed: dict[str, Any], grid: list[dict[str, float]], seeds: range, steps: int, kept: np.ndarray
) -> _Trace:
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


def _hits(trace: _Trace, shares: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for each setting and row of shares, the weights of the seeds, which of the iterations kept is the first
    with a mean of at most eps, and the calls of all kinds until then; infinitely many if there is none."""
    seeds = shares.shape[1]
    hits = np.zeros((len(trace.mean), len(shares)), int)
    calls = np.full(hits.shape, math.inf)
    for setting, mean in enumerate(trace.mean[:, :seeds]):
        below = shares @ mean <= eps
        hits[setting] = below.argmax(axis=1)
        for d in np.flatnonzero(below.any(axis=1)):
            calls[setting, d] = sum(_calls(trace, setting, int(hits[setting, d]), shares[d]).values())
    return hits, calls


def _calls(trace: _Trace, setting: int, k: int, share: np.ndarray) -> dict[str, float]:
    return {
        kind: float(trace.declared[kind][k]) + float(share @ extra[setting, : len(share), k])
        for kind, extra in trace.extra.items()
    }


def _fewest(trace: _Trace, shares: np.ndarray, eps: float) -> list[_Winner | None]:
    """Return for each row of shares the setting that gets the mean to eps with the fewest calls."""
    hits, calls = _hits(trace, shares, eps)
    return [
        _Winner(int(setting), _calls(trace, int(setting), int(hits[setting, d]), shares[d]))
        if math.isfinite(calls[setting, d])
        else None
        for d, setting in enumerate(calls.argmin(axis=0))
    ]


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
