"""Table 1, measured: oracle calls to reach mean |grad Phi|^2 <= eps on the noisy quadratic, for every method.

The mean is the theory's: over the iterations so far, and over seeds. For each target, every method is run with the
same number of settings (a grid of step sizes), and the one that needs the fewest calls counts. Batch sizes that a
method's theory ties to eps are tied to it here too. The slope of log calls against log 1/eps is fitted, with an
interval from a bootstrap over seeds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax import keys
from bilax.algorithms import ALGORITHMS
from bilax.oracle import KINDS, make_oracle
from bilax.problems.quadratic import Quadratic, quadratic
from bilax.runner import cost_per_step
from bilax.sampler import resolve

TARGETS = (2.0, 0.6, 0.2, 0.06, 0.02)
SETTINGS = 16  # per method and target
TOLERANCE = 0.1  # a slope this close to the proven exponent counts as it


@dataclass(frozen=True)
class Entry:
    """How one method is run."""

    name: str
    fixed: Callable[[float], dict[str, Any]]  # eps -> hyper-parameters that are not searched
    grid: dict[str, Sequence[float]]  # the step sizes and momentum constants that are
    steps: int  # at most
    proven: float | None  # exponent of 1/eps; None where none is proven
    sampler: str = "iid"


_SERIES = {"Q": 10, "eta": 0.75}

ENTRIES = (
    Entry(
        "mrbo",
        lambda eps: {**_SERIES, "S": 1, "d": 1.0, "m": 8.0},
        {"gamma": (0.003, 0.01, 0.03, 0.1), "lam": (0.3, 1.0), "c1": (0.3, 3.0)},
        30_000,
        1.5,
    ),
    Entry(
        "mrbo-d",
        lambda eps: {**_SERIES, "S": 1, "d": 1.0, "m": 8.0, "N": 4},
        {"gamma": (0.003, 0.01, 0.03, 0.1), "lam": (0.1, 0.3), "c1": (0.3, 3.0)},
        30_000,
        None,
    ),
    Entry(
        "vrbo",
        lambda eps: {
            **_SERIES,
            "m": 4,
            "S1": math.ceil(4 / eps),
            "S2": math.ceil(4 / eps**0.5),
            "q": max(1, round(0.1 * 4 / eps**0.5)),  # mu L beta S2 / (mu + L) for beta = 0.3
        },
        {"alpha": (0.003, 0.01, 0.03, 0.06), "beta": (0.05, 0.1, 0.2, 0.4)},
        4_000,
        1.5,
    ),
    Entry(
        "stocbio",
        lambda eps: {**_SERIES, "D": 5, "S": math.ceil(1 / eps)},
        {"beta": (0.01, 0.03, 0.06, 0.12), "alpha": (0.1, 0.2, 0.4, 0.6)},
        4_000,
        2.0,
    ),
    Entry(
        "bsa",
        lambda eps: {**_SERIES, "T": 5, "S": 1},
        {"alpha": (2e-4, 5e-4, 2.5e-3, 1e-2), "beta": (0.02, 0.05, 0.1, 0.2)},
        200_000,
        2.0,
    ),
    Entry(
        "ttsa",
        lambda eps: {**_SERIES, "S": 1},
        {"alpha": (0.01, 0.03, 0.1, 0.3), "beta": (0.3, 0.6, 1.0, 1.5)},
        40_000,
        2.5,
    ),
    Entry(
        "mstsa",
        lambda eps: {**_SERIES, "S": 1},
        {"alpha": (0.01, 0.03, 0.1, 0.3), "beta": (0.5, 1.0), "c": (3.0, 30.0)},
        100_000,
        2.0,
    ),
    Entry(
        "sustain",
        lambda eps: {**_SERIES, "S": 1, "w": 8.0},
        {"c": (0.01, 0.03, 0.1, 0.3), "c_b": (10.0, 30.0), "c_f": (30.0, 300.0)},
        120_000,
        1.5,
    ),
    Entry(
        "sema",
        lambda eps: {**_SERIES, "S": 1},
        {"gamma": (1e-4, 3e-4, 1e-3, 3e-3), "tau": (0.03, 0.1), "alpha": (0.03, 0.3)},
        200_000,
        2.0,
    ),
    Entry(
        "stable",
        lambda eps: {"S": 1, "mu": 0.2, "C": 10.0},
        {"alpha": (1e-3, 3e-3, 1e-2, 3e-2), "beta": (0.003, 0.03), "tau": (0.03, 0.3)},
        100_000,
        2.0,
    ),
    Entry(
        "rsvrb",
        lambda eps: {"S": 1, "mu": 0.2, "C": 10.0},
        {"gamma": (3e-4, 1e-3, 3e-3, 1e-2), "tau": (10.0, 30.0), "beta": (0.01, 0.1)},
        100_000,
        1.5,
    ),
    Entry(
        "aid-fp",
        lambda eps: {"N": 10, "eta": 0.75, "T": 5},
        {"alpha": (0.02, 0.05, 0.1, 0.2), "beta": (0.2, 0.4, 0.6, 0.8)},
        2_000,
        1.0,
        "full",
    ),
    Entry(
        "aid-cg",
        lambda eps: {"N": 4, "T": 5},
        {"alpha": (0.02, 0.05, 0.1, 0.2), "beta": (0.2, 0.4, 0.6, 0.8)},
        2_000,
        1.0,
        "full",
    ),
    Entry(
        "reverse",
        lambda eps: {"T": 20},
        {"alpha": (0.02, 0.05, 0.1, 0.2), "beta": (0.2, 0.4, 0.6, 0.8)},
        2_000,
        1.0,
        "full",
    ),
)


class Row(NamedTuple):
    """One method: calls per target and kind, and the slopes."""

    method: str
    proven: float | None
    calls: dict[str, list[float]]  # kind -> calls at each target, NaN where it was not reached
    settings: list[dict[str, float] | None]  # the winner at each target
    slope: dict[str, float]
    interval: dict[str, tuple[float, float]]  # 95 %, over seeds

    def verdict(self) -> str:
        """Compare the slope of the calls that the method makes most of with the proven exponent."""
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
    """The quadratic, and a start with |grad Phi|^2 = 4 and y at its solution: beyond it, noise decides."""
    q = quadratic(seed=0, noise=0.3)
    away = np.ones(q.x_star.size)
    away *= 2 / np.linalg.norm(q.gradient(q.x_star + away))
    x0 = q.x_star + away
    return q, x0, q.y_star(x0)


def run(
    *,
    names: Sequence[str] | None = None,
    targets: Sequence[float] = TARGETS,
    seeds: int = 8,
    scale: float = 1.0,
    announce: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure the named methods (all by default). ``scale`` shortens the runs, for a quick look."""
    rows = []
    for entry in ENTRIES:
        if names is None or entry.name in names:
            announce(f"{entry.name} ...")
            rows.append(_measure(entry, targets, seeds, max(2, round(entry.steps * scale))))
    return rows


def _measure(entry: Entry, targets: Sequence[float], seeds: int, steps: int) -> Row:
    grid = [dict(zip(entry.grid, values, strict=True)) for values in product(*entry.grid.values())]
    assert len(grid) == SETTINGS, entry.name
    traces: dict[str, _Trace] = {}
    rng = np.random.default_rng(0)
    draws = [np.arange(seeds), *rng.integers(seeds, size=(200, seeds))]
    calls = {kind: np.full((len(draws), len(targets)), np.nan) for kind in KINDS}
    winners: list[dict[str, float] | None] = []
    for t, eps in enumerate(targets):
        fixed = entry.fixed(eps)
        if repr(fixed) not in traces:
            traces[repr(fixed)] = _trace(entry, fixed, grid, seeds, steps)
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
    return Row(entry.name, entry.proven, {k: calls[k][0].tolist() for k in KINDS}, winners, slope, interval)


class _Trace(NamedTuple):
    mean: np.ndarray  # (settings, seeds, iterations kept): |grad Phi|^2, averaged over the iterations so far
    extra: dict[str, np.ndarray]  # HV and JV beyond the declared cost, summed over the iterations so far
    declared: dict[str, np.ndarray]  # (iterations kept,)


class _Winner(NamedTuple):
    setting: int
    calls: dict[str, float]


def _trace(entry: Entry, fixed: dict[str, Any], grid: list[dict[str, float]], seeds: int, steps: int) -> _Trace:
    """Run all settings and seeds as one compiled program."""
    q, x0, y0 = problem()
    x_star, sampler = jnp.asarray(q.x_star), resolve(entry.sampler)
    hessian = jnp.asarray(np.stack([q.gradient(q.x_star + e) for e in np.eye(x0.size)]))
    oracle = make_oracle(q.problem, sampler)
    cls = ALGORITHMS[entry.name]
    stacked = {name: jnp.array([setting[name] for setting in grid]) for name in entry.grid}
    start = jnp.asarray(x0), jnp.asarray(y0)

    def one(values, seed):
        algorithm, stream = cls(**fixed, **values), keys.root(seed)

        def step(state, _):
            gradient = hessian @ (state.x - x_star)
            after, info = algorithm.step(oracle, keys.at(stream, state.k), state)
            return after, (gradient @ gradient, info.HV * jnp.ones((), jnp.int32), info.JV * jnp.ones((), jnp.int32))

        return jax.lax.scan(step, algorithm.init(*start), length=steps)[1]

    over_seeds = jax.vmap(one, (None, 0))
    norms, HV, JV = jax.jit(jax.vmap(over_seeds, (0, None)))(stacked, jnp.arange(seeds))
    kept = np.unique(np.geomspace(1, steps, min(steps, 2000)).round().astype(int)) - 1  # each within 1 % of the next
    cost = cost_per_step(cls(**fixed, **grid[0]), q.problem, sampler)
    costs = [cost(k) for k in range(steps)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (np.cumsum(np.asarray(norms, np.float64), axis=-1) / np.arange(1, steps + 1))[..., kept]
    return _Trace(
        np.nan_to_num(mean, nan=np.inf),
        {kind: np.cumsum(np.asarray(n, np.int64), axis=-1)[..., kept] for kind, n in (("HV", HV), ("JV", JV))},
        {kind: np.cumsum([getattr(c, kind) for c in costs])[kept] for kind in KINDS},
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
