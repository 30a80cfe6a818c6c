"""From the measurements of several seeds to one curve with a band."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilax.report.labels import AXES, NOT_MEASURED
from bilax.report.optional_imports import required

if TYPE_CHECKING:
    import pandas

POINTS = 80  # of a curve, at most
QUARTILES_FROM = 5  # seeds; with fewer of them the band goes from the lowest to the highest seed

SeedRun = dict[str, np.ndarray]  # the columns of one seed, in the order of the measurements


class Curve(NamedTuple):
    x: np.ndarray
    middle: np.ndarray  # the median over seeds
    low: np.ndarray  # of the band, NaN if there is one seed only
    high: np.ndarray
    seeds: int  # behind each point


def runs(table: "pandas.DataFrame", method: str) -> list[SeedRun]:
    """Return the runs of a method, one for each seed; columns that are not numbers become NaN."""
    if "method" not in table or "seed" not in table:
        return []
    to_numeric = required("pandas").to_numeric
    rows = table[table["method"] == method]
    return [
        {
            str(name): column.to_numpy()
            if name in NOT_MEASURED
            else np.asarray(to_numeric(column, errors="coerce"), float)
            for name, column in run.items()
        }
        for _, run in rows.groupby("seed", sort=False, dropna=False)
    ]


def columns(everything: Sequence[SeedRun]) -> tuple[list[str], list[str]]:
    """Return the axes along which something moves, and the metrics of which something was measured."""
    axes, metrics = [], []
    for name in dict.fromkeys(name for run in everything for name in run if name not in NOT_MEASURED):
        values = np.concatenate([run[name] for run in everything if name in run])
        values = values[np.isfinite(values)]
        if name in AXES and len(np.unique(values)) > 1:
            axes.append(name)
        if name not in AXES and len(values):
            metrics.append(name)
    return sorted(axes, key=list(AXES).index), metrics


def along(some: Sequence[SeedRun], x: str, y: str) -> Curve | None:
    """Return the curve of one metric along one axis over the runs of a method."""
    return aggregate([(run[x], run[y]) for run in some if x in run and y in run])


def aggregate(some: Sequence[tuple[np.ndarray, np.ndarray]], points: int = POINTS) -> Curve | None:
    """Return median and band over runs, each given by its x and y; None if there is nothing finite.

    The grid is made of the x of all runs, so that it is fine where the measurements are. Between its measurements a
    run is interpolated. The curve goes as far as all runs do: a median jumps where a seed leaves it. A run that
    measured only once has no part in it, unless all did.

    >>> a, b = ([0, 2, 4], [8, 4, 2]), ([0, 4], [6, 4])
    >>> curve = aggregate([a, b])
    >>> curve.x.tolist(), curve.middle.tolist(), curve.low.tolist(), curve.high.tolist()
    ([0.0, 2.0, 4.0], [7.0, 4.5, 3.0], [6.0, 4.0, 2.0], [8.0, 5.0, 4.0])
    """
    cleaned = [run for run in (_clean(*run) for run in some) if len(run[0])]
    cleaned = [run for run in cleaned if len(run[0]) > 1] or cleaned
    if not cleaned:
        return None
    grid = np.unique(np.concatenate([x for x, _ in cleaned]))
    grid = grid[(grid >= max(x[0] for x, _ in cleaned)) & (grid <= min(x[-1] for x, _ in cleaned))]
    if not len(grid):
        return None
    if len(grid) > points:
        grid = grid[np.linspace(0, len(grid) - 1, points).round().astype(int)]
    values = np.array([np.interp(grid, x, y) for x, y in cleaned])
    shares = (0.25, 0.5, 0.75) if quartiles(len(cleaned)) else (0, 0.5, 1)
    low, middle, high = np.quantile(values, shares, axis=0)
    if len(cleaned) == 1:
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    return Curve(grid, middle, low, high, len(cleaned))


def quartiles(seeds: int) -> bool:
    return seeds >= QUARTILES_FROM


def _clean(x, y) -> tuple[np.ndarray, np.ndarray]:
    """Return the finite measurements by rising x; of several at one x the last, which is the latest."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    finite = np.isfinite(x) & np.isfinite(y)
    x, first = np.unique(x[finite][::-1], return_index=True)
    return x, y[finite][::-1][first]


def last(some: Sequence[SeedRun], column: str) -> float:
    """Return the median over runs of the last value that each of them measured, NaN if there is none."""
    measured = [run[column][~np.isnan(run[column])] for run in some if column in run]
    ends = [values[-1] for values in measured if len(values)]
    return float(np.median(ends)) if ends else float("nan")


def view(curves: Sequence[Curve | None]) -> tuple[float, float] | None:
    """Return the part of a linear axis to show when a few curves leave for infinity, None if none does.

    A diverged run would otherwise press all others into a flat line.
    """
    drawn = [np.concatenate([curve.middle, curve.low, curve.high]) for curve in curves if curve]
    tops = [np.nanmax(values) for values in drawn]
    usual = float(np.median(tops)) if tops else 0.0
    if usual <= 0 or max(tops) < 100 * usual:
        return None
    bottom, top = min(float(np.nanmin(values)) for values in drawn), 1.25 * usual
    return bottom - 0.05 * (top - bottom), top


class Start(NamedTuple):
    """How a logarithmic axis shows 0, which has no logarithm."""

    place: float  # where 0 is drawn, left of everything else
    first: float  # the lowest x above 0


def start(curves: Sequence[Curve | None]) -> Start | None:
    """Return where curves that begin at 0 begin on a logarithmic axis, None if none does.

    >>> start([aggregate([([0, 1, 100], [3, 2, 1])])])
    Start(place=0.5, first=1.0)
    """
    x = np.concatenate([curve.x for curve in curves if curve] or [np.empty(0)])
    above = x[x > 0]
    if len(above) == len(x) or not len(above):
        return None
    first, last = float(above.min()), float(above.max())
    return Start(first / max(2, (last / first) ** 0.12), first)
