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

import numpy as np

from bilax.algorithms import ALGORITHMS
from bilax.algorithms.about import Scaling
from bilax.oracle import KINDS
from bilax.paper.reaching import SEEDS, Reached, Runs, certain, long_enough
from bilax.storage.remembering import remembered

TARGETS = (2.0, 0.6, 0.2, 0.06, 0.02)
FITTED = 0.6  # slopes are fitted from here on: a larger target is reached in the first few steps, before noise counts
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

    def begin(fixed: dict[str, Any], eps: float) -> Runs:
        return long_enough(Runs(method, fixed, grid, steps), eps, min(SEEDS[0], most))

    tied = _best_constants(scaling, begin, min(targets))
    alike: dict[str, list[float]] = {}  # targets that the same runs serve
    for eps in targets:
        alike.setdefault(repr(tied(eps)), []).append(eps)
    reached: dict[float, Reached] = {}
    for some in alike.values():
        runs = begin(tied(some[0]), min(some))
        reached |= zip(some, certain(runs, some, most), strict=True)
    calls = {kind: np.stack([reached[eps].calls[kind] for eps in targets], axis=1) for kind in KINDS}
    slope, interval = {}, {}
    x = np.log(1 / np.asarray(targets))
    small = np.asarray(targets) <= FITTED
    fitted = small if small.sum() >= 3 else np.ones(len(targets), bool)
    for kind in KINDS:
        slopes = np.array([_slope(x[fitted], row[fitted]) for row in calls[kind]])
        slope[kind] = float(slopes[0])
        finite = slopes[np.isfinite(slopes)]
        low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) > 20 else (np.nan, np.nan)
        interval[kind] = (float(low), float(high))
    return Row(
        method=method.about.name,
        proven=scaling.exponent,
        calls={kind: calls[kind][0].tolist() for kind in KINDS},
        settings=[reached[eps].setting for eps in targets],
        slope=slope,
        interval=interval,
        seeds=max(at.seeds for at in reached.values()),
        total=[reached[eps].interval() for eps in targets],
        constants=tied(min(targets)),
    )


def _best_constants(
    scaling: Scaling, begin: Callable[[dict[str, Any], float], Runs], eps: float
) -> Callable[[float], dict[str, Any]]:
    """Return how to tie batches to eps: the way that needs the fewest calls at the smallest target."""
    if not scaling.others:
        return scaling.fixed

    def calls(tied: Callable) -> float:
        found = begin(tied(eps), eps).reach(eps)
        return float(np.nan_to_num(found.total()[0], nan=math.inf))

    return min((scaling.fixed, *scaling.others), key=calls)


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
