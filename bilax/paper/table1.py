"""Table 1, measured: oracle calls to reach mean |grad Phi|^2 <= eps on the noisy quadratic, for every method.

The mean is the theory's: over the iterations so far, and over seeds. For each target, every method is run with the
same number of settings (a grid of step sizes), and the one that needs the fewest calls counts. Batch sizes that a
method's theory ties to eps are tied to it here too. The slope of log calls against log 1/eps is fitted, with an
interval from a bootstrap over seeds.
"""

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
from bilax.oracle import KINDS, traced
from bilax.problems.quadratic import Quadratic, quadratic
from bilax.running import loop
from bilax.running.accounting import Account
from bilax.sampling import keys
from bilax.storage.remembering import remembered

TARGETS = (2.0, 0.6, 0.2, 0.06, 0.02)
SETTINGS = 16  # per method and target
TOLERANCE = 0.1  # a slope this close to the proven exponent counts as equal to it


class Row(NamedTuple):
    """One method: calls per target and kind, and the slopes."""

    method: str
    proven: float | None
    calls: dict[str, list[float]]  # kind -> calls at each target, NaN where it was not reached
    settings: list[dict[str, float] | None]  # the winner at each target
    slope: dict[str, float]
    interval: dict[str, tuple[float, float]]  # 95 %, over seeds

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
    seeds: int = 8,
    scale: float = 1.0,
    announce: Callable[[str], None] = lambda text: None,
    keep: Path | None = None,
) -> list[Row]:
    """Measure the named methods (all by default). ``scale`` shortens the runs, for a quick look.

    Rows are kept in the folder ``keep`` as they are measured, and not measured again.
    """
    rows = []
    for name, method in ALGORITHMS.items():
        if method.about.scaling is not None and (names is None or name in names):
            announce(f"{name} ...")
            steps = max(2, round(method.about.scaling.steps * scale))
            identity = {"table1": name, "targets": list(targets), "seeds": seeds, "steps": steps}
            row = remembered(keep, identity, lambda m=method, n=steps: _measure(m, targets, seeds, n)._asdict())
            rows.append(Row(**row)._replace(interval={k: tuple(v) for k, v in row["interval"].items()}))
    return rows


def settings_of(scaling: Scaling) -> list[dict[str, float]]:
    """Return the settings that are tried, the same number for every method."""
    return [dict(zip(scaling.grid, values, strict=True)) for values in product(*scaling.grid.values())]


def _measure(method: type, targets: Sequence[float], seeds: int, steps: int) -> Row:
    scaling = method.about.scaling
    grid = settings_of(scaling)
    traces: dict[str, _Trace] = {}
    rng = np.random.default_rng(0)
    draws = [np.arange(seeds), *rng.integers(seeds, size=(200, seeds))]
    calls = {kind: np.full((len(draws), len(targets)), np.nan) for kind in KINDS}
    winners: list[dict[str, float] | None] = []
    for t, eps in enumerate(targets):
        fixed = scaling.fixed(eps)
        if repr(fixed) not in traces:
            traces[repr(fixed)] = _trace(method, fixed, grid, seeds, steps)
        trace = traces[repr(fixed)]
        for d, chosen in enumerate(draws):
            winner = _fewest(trace, chosen, eps)
            if winner is not None:
                for kind in KINDS:
                    calls[kind][d, t] = winner.calls[kind]
            if d == 0:
                winners.append(None if winner is None else grid[winner.setting])
    slope, interval = {}, {}
    x = np.log(1 / np.asarray(targets))
    for kind in KINDS:
        slopes = np.array([_slope(x, row) for row in calls[kind]])
        slope[kind] = float(slopes[0])
        finite = slopes[np.isfinite(slopes)]
        low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) > 20 else (np.nan, np.nan)
        interval[kind] = (float(low), float(high))
    return Row(method.about.name, scaling.exponent, {k: calls[k][0].tolist() for k in KINDS}, winners, slope, interval)


class _Trace(NamedTuple):
    mean: np.ndarray  # (settings, seeds, iterations kept): |grad Phi|^2, averaged over the iterations so far
    extra: dict[str, np.ndarray]  # calls beyond the declared cost, summed over the iterations so far
    declared: dict[str, np.ndarray]  # (iterations kept,): calls of the declared cost, summed likewise


class _Winner(NamedTuple):
    setting: int
    calls: dict[str, float]


def _trace(method: type, fixed: dict[str, Any], grid: list[dict[str, float]], seeds: int, steps: int) -> _Trace:
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
    norms, calls = jax.jit(jax.vmap(over_seeds, (0, None)))(stacked, jnp.arange(seeds))
    kept = np.unique(np.geomspace(1, steps, min(steps, 2000)).round().astype(int)) - 1  # each within 1 % of the next
    account = Account(method(**fixed, **grid[0]), parts)
    declared = [account.between(0, k + 1) for k in kept.tolist()]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (np.cumsum(np.asarray(norms, np.float64), axis=-1) / np.arange(1, steps + 1))[..., kept]
    extra = {kind: np.asarray(getattr(calls, kind), np.int64) for kind in KINDS}
    return _Trace(
        np.nan_to_num(mean, nan=np.inf),
        {kind: np.cumsum(n, axis=-1)[..., kept] for kind, n in extra.items()},
        {kind: np.array([getattr(c, kind) for c in declared]) for kind in KINDS},
    )


def _fewest(trace: _Trace, chosen: np.ndarray, eps: float) -> _Winner | None:
    """Return the setting that gets the mean over the chosen seeds to eps with the fewest calls."""
    best, fewest = None, math.inf
    with np.errstate(over="ignore"):
        below = trace.mean[:, chosen].mean(axis=1) <= eps
    for setting in np.flatnonzero(below.any(axis=1)):
        k = int(below[setting].argmax())
        calls = {kind: float(trace.declared[kind][k]) for kind in KINDS}
        for kind, extra in trace.extra.items():
            calls[kind] += float(extra[setting, chosen, k].mean())
        if sum(calls.values()) < fewest:
            best, fewest = _Winner(int(setting), calls), sum(calls.values())
    return best


def _slope(x: np.ndarray, calls: np.ndarray) -> float:
    reached = np.isfinite(calls) & (calls > 0)
    return float(np.polyfit(x[reached], np.log(calls[reached]), 1)[0]) if reached.sum() >= 3 else math.nan


def markdown(rows: Sequence[Row], targets: Sequence[float] = TARGETS) -> str:
    """Return the table: slopes per kind beside the proven exponent, and the calls at every target."""
    kinds = [kind for kind in KINDS if any(max(row.calls[kind], default=0) > 0 for row in rows)]
    lines = [
        "| method | " + " | ".join(f"slope {kind}" for kind in kinds) + " | proven | verdict | "
        + " | ".join(f"calls at {eps:g}" for eps in targets) + " |",
        "| --- |" + " --- |" * (len(kinds) + 2 + len(targets)),
    ]  # fmt: skip
    for row in rows:
        slopes = [
            f"{row.slope[kind]:.2f} ({row.interval[kind][0]:.2f} to {row.interval[kind][1]:.2f})"
            if math.isfinite(row.slope[kind])
            else ""
            for kind in kinds
        ]
        totals = [sum(row.calls[kind][t] for kind in KINDS) for t in range(len(targets))]
        cells = [f"{total:.2g}" if math.isfinite(total) else "not reached" for total in totals]
        proven = "" if row.proven is None else f"{row.proven:g}"
        lines.append("| " + " | ".join([row.method, *slopes, proven, row.verdict(), *cells]) + " |")
    return "\n".join(lines)
