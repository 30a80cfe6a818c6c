"""Calls until a target is reached: runs of one method at many settings and seeds, as few of them as decide it.

Long runs are begun short, and more seeds are run of the settings that may win.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax.oracle import KINDS, Counts, traced
from bilax.problems.quadratic import Quadratic, quadratic
from bilax.running import loop
from bilax.running.accounting import Account
from bilax.sampling import keys

SEEDS = (16, 256)  # at first, and at most
AT_ONCE = 5e7  # iterations in one program: what they tell is in memory, some 50 bytes each
CLOSE = 1.5  # settings that need at most so many times the calls of the best are run with more seeds
KNOWN = 0.1  # seeds are added until half the interval of the calls is this part of them, at every target
HUGE = 1e300  # stands for what is not finite: no share of it, however small, reaches a target, and 0 of it is 0


def problem() -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """The quadratic, and a start with |grad Phi|^2 = 4 and y at its solution, so that noise decides from there on."""
    q = quadratic(seed=0, noise=0.3)
    away = np.ones(q.x_star.size)
    away *= 2 / np.linalg.norm(q.gradient(q.x_star + away))
    x0 = q.x_star + away
    return q, x0, q.y_star(x0)


class Reached(NamedTuple):
    """The calls to one target with the best setting: of all seeds, then of each bootstrap sample of them."""

    calls: dict[str, np.ndarray]  # kind -> (1 + bootstrap samples,), NaN where the target was not reached
    setting: dict[str, float] | None
    seeds: int

    def total(self) -> np.ndarray:
        return np.sum(list(self.calls.values()), axis=0)

    def interval(self) -> tuple[float, float]:
        """95 % of the calls of all kinds; NaN if one sample in twenty does not reach the target."""
        total = self.total()[1:]
        if np.isfinite(total).mean() <= 0.95:
            return math.nan, math.nan
        low, high = np.nanpercentile(total, [2.5, 97.5])
        return float(low), float(high)

    def is_known(self) -> bool:
        low, high = self.interval()
        if math.isnan(low):  # reached by some samples of the seeds: unknown; by none: more seeds will not help
            return not np.isfinite(self.total()).any()
        return (high - low) / 2 <= KNOWN * self.total()[0]


def long_enough(runs: "Runs", eps: float, seeds: int) -> "Runs":
    """Return runs that are no longer than they must be: twice as long as the best setting needs, or all their steps."""
    for part in (64, 16, 4):
        shorter = runs.of_at_most(max(2, runs.steps // part))
        shorter.add(seeds)
        hits, calls = first_hits(shorter.trace, shares_of(seeds), eps)
        best = hits[calls.argmin(axis=0), np.arange(calls.shape[1])]
        if np.isfinite(calls.min(axis=0)).all() and 2 * (shorter.kept[best].max() + 1) <= shorter.steps:
            return shorter
    runs.add(seeds)
    return runs


def certain(runs: "Runs", targets: Sequence[float], most: int) -> list[Reached]:
    """Add seeds until the calls to every target are known well enough, or there are so many."""
    while True:
        found = [runs.reach(eps) for eps in targets]
        if runs.seeds >= most or all(at.is_known() for at in found):
            return found
        runs.narrow(*promising(runs, targets))
        runs.add(min(4 * runs.seeds, most))


def promising(runs: "Runs", targets: Sequence[float]) -> tuple[list[int], int]:
    """Return the settings that are among the best at some target, for some sample of the seeds, and twice the steps
    that the best of them need: more seeds of the others would not change the calls."""
    among, steps = np.zeros(len(runs.grid), bool), 0
    for eps in targets:
        hits, calls = first_hits(runs.trace, shares_of(runs.seeds), eps)
        best = calls.min(axis=0)
        if np.isinf(best).any():  # not always reached: anything may help
            return list(range(len(runs.grid))), runs.steps
        among |= (calls <= CLOSE * best).any(axis=1)
        steps = max(steps, int(runs.kept[hits[calls.argmin(axis=0), np.arange(len(best))]].max()) + 1)
    return np.flatnonzero(among).tolist(), 2 * steps


def shares_of(seeds: int) -> np.ndarray:
    """Return the weights of the seeds: all alike, then as often as each is in a bootstrap sample."""
    drawn = np.random.default_rng(0).integers(seeds, size=(200, seeds))
    return np.stack([np.bincount(row, minlength=seeds) / seeds for row in (np.arange(seeds), *drawn)])


class Runs:
    """Runs of one method with what is not searched, at all settings of a grid, for as many seeds as were added."""

    def __init__(self, method: type, fixed: dict[str, Any], grid: list[dict[str, float]], steps: int):
        self.method, self.fixed, self.grid, self.steps = method, fixed, grid, steps
        # The iterations that are kept, each within 1 % of the next.
        self.kept = np.unique(np.geomspace(1, steps, min(steps, 2000)).round().astype(int)) - 1
        self.trace: Any = None

    def of_at_most(self, steps: int) -> "Runs":
        return Runs(self.method, self.fixed, self.grid, min(steps, self.steps))

    @property
    def seeds(self) -> int:
        return 0 if self.trace is None else self.trace.mean.shape[1]

    def add(self, seeds: int) -> None:
        """Run seeds until there are so many."""
        together = max(SEEDS[0], int(AT_ONCE / len(self.grid) / self.steps))
        while self.seeds < seeds:
            some = range(self.seeds, min(self.seeds + together, seeds))
            new = trace(self.method, self.fixed, self.grid, some, self.steps, self.kept)
            self.trace = new if self.trace is None else self.trace.joined(new)

    def narrow(self, settings: list[int], steps: int) -> None:
        """Go on with these settings alone, and with no more steps than these."""
        self.grid = [self.grid[i] for i in settings]
        self.steps = min(self.steps, steps)
        self.kept = self.kept[self.kept < self.steps]
        self.trace = self.trace.cut(settings, len(self.kept))

    def reach(self, eps: float) -> Reached:
        """Return the fewest calls to a target."""
        shares = shares_of(self.seeds)
        hits, calls = first_hits(self.trace, shares, eps)
        found = {kind: np.full(len(shares), np.nan) for kind in KINDS}
        best = calls.argmin(axis=0)
        for setting in np.unique(best):
            wins = (best == setting) & np.isfinite(calls[setting])
            for kind, numbers in calls_until(self.trace, setting, hits[setting], shares).items():
                found[kind][wins] = numbers[wins]
        setting = self.grid[best[0]] if math.isfinite(calls[best[0], 0]) else None
        return Reached(found, setting, self.seeds)


class Trace(NamedTuple):
    mean: np.ndarray  # (settings, seeds, iterations kept): |grad Phi|^2, averaged over the iterations so far
    extra: dict[str, np.ndarray]  # calls beyond the declared cost, summed over the iterations so far
    declared: dict[str, np.ndarray]  # (iterations kept,): calls of the declared cost, summed likewise

    def joined(self, other: "Trace") -> "Trace":
        """The same with the seeds of both."""
        extra = {kind: np.concatenate([self.extra[kind], other.extra[kind]], axis=1) for kind in KINDS}
        return Trace(np.concatenate([self.mean, other.mean], axis=1), extra, self.declared)

    def cut(self, settings: list[int], kept: int) -> "Trace":
        """The same with some settings, and the first iterations, alone."""
        extra = {kind: extra[settings, :, :kept] for kind, extra in self.extra.items()}
        declared = {kind: declared[:kept] for kind, declared in self.declared.items()}
        return Trace(self.mean[settings, :, :kept], extra, declared)


def trace(
    method: type, fixed: dict[str, Any], grid: list[dict[str, float]], seeds: range, steps: int, kept: np.ndarray
) -> Trace:
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
        _, _, infos, norms = loop.record(parts, algorithm, keys.root(seed), first, steps, squared_gradient)
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
    return Trace(
        np.nan_to_num(mean, nan=HUGE, posinf=HUGE),
        {kind: np.cumsum(n, axis=-1)[..., kept] for kind, n in extra.items()},
        {kind: np.array([getattr(c, kind) for c in declared]) for kind in KINDS},
    )


def first_hits(trace: Trace, shares: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for each setting and row of shares, the weights of the seeds, which of the iterations kept is the first
    with a mean of at most eps, and the calls of all kinds until then; infinitely many if there is none."""
    hits = np.zeros((len(trace.mean), len(shares)), int)
    calls = np.full(hits.shape, math.inf)
    for setting, mean in enumerate(trace.mean):
        below = shares @ mean <= eps
        hits[setting] = below.argmax(axis=1)
        needed = sum(calls_until(trace, setting, hits[setting], shares).values())
        calls[setting] = np.where(below.any(axis=1), needed, math.inf)
    return hits, calls


def calls_until(trace: Trace, setting: int, hits: np.ndarray, shares: np.ndarray) -> dict[str, np.ndarray]:
    """Return the calls of each kind until the iterations ``hits``, one for each row of shares."""
    return {
        kind: trace.declared[kind][hits] + np.einsum("ds,sd->d", shares, extra[setting][:, hits])
        for kind, extra in trace.extra.items()
    }
