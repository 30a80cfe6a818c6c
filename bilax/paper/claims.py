"""What the paper claims about its experiments, each claim with the test that decides it from the runs.

A comparison is made seed by seed. It holds if at least four of five seeds say so, fails if as many say the
opposite, and else is undecided, as with fewer than three seeds. A claim of several comparisons holds if all hold, and
fails if one fails. "Faster" means: fewer seconds (or samples) to a tenth of the initial loss. A run that stopped short
of the target says only that it needs more than it used.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    import pandas

Outcome: TypeAlias = str  # "holds", "fails" or "undecided"
ENOUGH_SEEDS, AGREEMENT = 3, 0.8
TARGET = 0.1  # of the initial loss


class Judged(NamedTuple):
    outcome: Outcome
    numbers: str


class Effort(NamedTuple):
    """What a run needed to reach a target, or what it had used when it stopped short of it."""

    amount: float  # infinite for a run that diverged: no budget would have been enough
    reached: bool

    def less_than(self, other: "Effort", factor: float = 1.0) -> bool | None:
        """Tell whether ``factor`` times this is below the other; None if the runs do not say."""
        mine = factor * self.amount
        if self.reached and other.reached:
            return None if mine == other.amount else mine < other.amount
        if self.reached and other.amount >= mine:
            return True
        return False if other.reached and mine >= other.amount else None


class Curves:
    """The runs of one figure, by method and seed."""

    def __init__(self, table: "pandas.DataFrame", y: str):
        self.y, self.worst = y, -math.inf if y == "test_accuracy" else math.inf
        self.runs: dict[str, dict[int, Any]] = {}
        for key, rows in table.groupby(["method", "seed"]):
            method, seed = cast(tuple, key)
            rows = rows.dropna(subset=[y]).sort_values("k")
            if len(rows):
                self.runs.setdefault(str(method), {})[int(seed)] = rows

    def of(self, method: str) -> dict[int, Any]:
        return self.runs.get(method, {})

    def final(self, method: str) -> dict[int, float]:
        """Return the mean over the last tenth of the measurements, by seed; for a diverged run, the worst possible."""
        return {
            seed: self.worst if _diverged(rows) else float(rows[self.y].iloc[-max(1, len(rows) // 10) :].mean())
            for seed, rows in self.of(method).items()
        }

    def effort(self, method: str, axis: str, reached: Callable[[Any], Any]) -> dict[int, Effort]:
        efforts = {}
        for seed, rows in self.of(method).items():
            hits = rows[axis][reached(rows)]
            spent = math.inf if _diverged(rows) else float(rows[axis].iloc[-1])
            efforts[seed] = Effort(float(hits.iloc[0]), True) if len(hits) else Effort(spent, False)
        return efforts

    def to_tenth(self, method: str, axis: str) -> dict[int, Effort]:
        return self.effort(method, axis, lambda rows: rows[self.y] <= TARGET * rows[self.y].iloc[0])

    def rise(self, method: str) -> dict[int, float]:
        """Return by how much the curve goes up on average, from one measurement to the next, in its second half."""
        rises = {}
        for seed, rows in self.of(method).items():
            moves = rows[self.y].iloc[len(rows) // 2 :].diff().dropna()
            if _diverged(rows) or len(moves):
                rises[seed] = math.inf if _diverged(rows) else float(moves.clip(lower=0).mean())
        return rises


def _diverged(rows: Any) -> bool:
    return "status" in rows and rows["status"].iloc[-1] == "diverged"


def decide(pairs: Iterable[bool | None]) -> Outcome:
    """Return the outcome of one comparison from what each seed says.

    >>> decide([True, True, True, True, False]), decide([False, False, None]), decide([False] * 3), decide([True])
    ('holds', 'undecided', 'fails', 'undecided')
    """
    said = list(pairs)
    if len(said) < ENOUGH_SEEDS:
        return "undecided"
    if sum(one is True for one in said) >= AGREEMENT * len(said):
        return "holds"
    return "fails" if sum(one is False for one in said) >= AGREEMENT * len(said) else "undecided"


def together(outcomes: Iterable[Outcome]) -> Outcome:
    found = list(outcomes)
    if "fails" in found:
        return "fails"
    return "undecided" if "undecided" in found or not found else "holds"


def each_against_each(
    winners: Sequence[dict], losers: Sequence[dict], beats: Callable[[Any, Any], bool | None]
) -> Outcome:
    """Compare all winners with all losers, seed by seed; a seed that one of them lacks says nothing, but counts."""
    return together(
        decide(beats(a[s], b[s]) if s in a and s in b else None for s in sorted(a.keys() | b.keys()))
        for a in winners
        for b in losers
    )


def _below(margin: float = 1.0) -> Callable[[float, float], bool | None]:
    return lambda a, b: None if a == b else a < margin * b


def _above(a: float, b: float) -> bool | None:
    return None if a == b else a > b


def _efforts(efforts: dict[int, Effort]) -> str:
    """Return the median; runs that stopped short count as more than they used."""
    if not efforts:
        return "no runs"
    ordered = sorted(efforts.values(), key=lambda e: (not e.reached, e.amount))
    middle = ordered[(len(ordered) - 1) // 2]
    if math.isinf(middle.amount):
        return "diverged"
    return f"{'' if middle.reached else 'more than '}{middle.amount:.3g}"


def _split(values: dict[str, dict], winners: Sequence[str]) -> tuple[list[dict], list[dict]]:
    return [values[m] for m in winners], [by_seed for m, by_seed in values.items() if m not in winners]


def faster(winners: Sequence[str], losers: Sequence[str], axis: str = "seconds", factor: float = 1.0) -> "Test":
    """Each winner needs less than 1/``factor`` of what each loser needs to reach a tenth of the initial loss."""

    def test(curves: Curves) -> Judged:
        efforts = {method: curves.to_tenth(method, axis) for method in (*winners, *losers)}
        outcome = each_against_each(*_split(efforts, winners), lambda a, b: a.less_than(b, factor))
        listed = ", ".join(f"{method} {_efforts(efforts[method])}" for method in efforts)
        return Judged(outcome, f"{axis} to a tenth of the initial loss: {listed}")

    return test


def first_to_half(winner: str, losers: Sequence[str]) -> "Test":
    """The winner is the first to reach half of the best final accuracy of all methods."""

    def test(curves: Curves) -> Judged:
        level = max((median(ends.values()) for m in curves.runs if (ends := curves.final(m))), default=math.nan) / 2
        efforts = {m: curves.effort(m, "seconds", lambda rows: rows[curves.y] >= level) for m in (winner, *losers)}
        outcome = each_against_each(*_split(efforts, [winner]), Effort.less_than)
        listed = ", ".join(f"{method} {_efforts(efforts[method])}" for method in efforts)
        return Judged(outcome, f"seconds to an accuracy of {level:.2f}: {listed}")

    return test


def lower_end(winners: Sequence[str], losers: Sequence[str]) -> "Test":
    """Each winner ends with a lower loss than each loser."""

    def test(curves: Curves) -> Judged:
        ends = {method: curves.final(method) for method in (*winners, *losers)}
        return Judged(each_against_each(*_split(ends, winners), _below()), "final loss: " + _listed(ends))

    return test


def higher_end(winners: Sequence[str], losers: Sequence[str]) -> "Test":
    """Each winner ends with a higher accuracy than each loser."""

    def test(curves: Curves) -> Judged:
        ends = {method: curves.final(method) for method in (*winners, *losers)}
        return Judged(each_against_each(*_split(ends, winners), _above), "final accuracy: " + _listed(ends))

    return test


def steadier(winner: str, loser: str) -> "Test":
    def test(curves: Curves) -> Judged:
        rises = {method: curves.rise(method) for method in (winner, loser)}
        outcome = each_against_each(*_split(rises, [winner]), _below())
        return Judged(outcome, "mean rise per measurement in the second half: " + _listed(rises))

    return test


def best_in_the_middle(order: Sequence[str], best: str) -> "Test":
    """The final loss falls along the order until the best one, and rises after it."""

    def test(curves: Curves) -> Judged:
        ends = {method: curves.final(method) for method in order}
        at = order.index(best)
        down = [each_against_each([ends[b]], [ends[a]], _below()) for a, b in pairwise(order[: at + 1])]
        up = [each_against_each([ends[a]], [ends[b]], _below()) for a, b in pairwise(order[at:])]
        return Judged(together(down + up), "final loss: " + _listed(ends))

    return test


def poor(methods: Sequence[str], share: float = 0.9) -> "Test":
    """These methods end below a share of the best accuracy of the others."""

    def test(curves: Curves) -> Judged:
        ends = {method: curves.final(method) for method in curves.runs}
        others = [by_seed for method, by_seed in ends.items() if method not in methods]
        best = max(others, key=lambda by_seed: median(by_seed.values()), default={})
        outcome = each_against_each([ends.get(m, {}) for m in methods], [best], _below(share))
        return Judged(outcome, "final accuracy: " + _listed(ends))

    return test


def _listed(values: dict[str, dict[int, float]]) -> str:
    def told(by_seed: dict[int, float]) -> str:
        middle = median(by_seed.values()) if by_seed else math.nan
        return "no runs" if not by_seed else f"{middle:.3g}" if math.isfinite(middle) else "diverged"

    return ", ".join(f"{method} {told(by_seed)}" for method, by_seed in values.items())


Test: TypeAlias = Callable[[Curves], Judged]


@dataclass(frozen=True)
class Claim:
    text: str
    where: tuple[str, ...]  # the figures it is about
    test: Test


_SINGLE_LOOP = ("MSTSA", "SUSTAIN", "STABLE")
_OTHERS = ("MRBO", "AID-FP", "reverse", "BSA", *_SINGLE_LOOP)
_M = tuple(f"VRBO-{m}" for m in (1, 10, 20, 50, 100))

CLAIMS = (
    Claim(
        "VRBO and stocBiO converge much faster (at least twice) than all others",
        ("fig1a", "fig1b"),
        faster(("VRBO", "stocBiO"), _OTHERS, factor=2),
    ),
    Claim("VRBO ends with a lower loss than stocBiO", ("fig1a", "fig1b"), lower_end(("VRBO",), ("stocBiO",))),
    Claim("VRBO converges more steadily than stocBiO", ("fig1a", "fig1b"), steadier("VRBO", "stocBiO")),
    Claim(
        "VRBO converges faster than every single-loop momentum method",
        ("fig1a", "fig1b", "fig1c", "fig2"),
        faster(("VRBO",), ("MRBO", *_SINGLE_LOOP)),
    ),
    Claim(
        "MRBO is the fastest of the single-loop momentum methods",
        ("fig1a", "fig1b", "fig1c", "fig2"),
        faster(("MRBO",), _SINGLE_LOOP),
    ),
    Claim(
        "stocBiO, reverse and AID-FP converge faster than MRBO",
        ("fig1a", "fig1b"),
        faster(("stocBiO", "reverse", "AID-FP"), ("MRBO",)),
    ),
    Claim("BSA converges faster than MSTSA, STABLE and SUSTAIN", ("fig1a", "fig1b"), faster(("BSA",), _SINGLE_LOOP)),
    Claim(
        "VRBO gets better from m = 1 to m = 20, and worse beyond", ("fig3a", "fig3b"), best_in_the_middle(_M, "VRBO-20")
    ),
    Claim(
        "MRBO and VRBO need fewer samples than stocBiO, reverse and AID-FP",
        ("fig4a", "fig4b"),
        faster(("MRBO", "VRBO"), ("stocBiO", "reverse", "AID-FP"), "samples"),
    ),
    Claim(
        "single-sample methods need fewer samples than MRBO and VRBO",
        ("fig5a", "fig5b"),
        faster(("BSA", *_SINGLE_LOOP), ("MRBO", "VRBO"), "samples"),
    ),
    Claim(
        "20 Newsgroups, batches of 100: stocBiO is the fastest at first",
        ("fig6a",),
        first_to_half("stocBiO", ("MRBO", "MRBO(D)", "VRBO", "SUSTAIN", "MSTSA")),
    ),
    Claim(
        "20 Newsgroups, batches of 100: MRBO and VRBO end more accurate than stocBiO",
        ("fig6a",),
        higher_end(("MRBO", "VRBO"), ("stocBiO",)),
    ),
    Claim(
        "20 Newsgroups, batches of 100: MRBO(D) is the most accurate",
        ("fig6a",),
        higher_end(("MRBO(D)",), ("stocBiO", "MRBO", "VRBO", "SUSTAIN", "MSTSA")),
    ),
    Claim(
        "20 Newsgroups, batches of 100: SUSTAIN and MSTSA do not converge well (below 0.9 of the best accuracy)",
        ("fig6a",),
        poor(("SUSTAIN", "MSTSA")),
    ),
    Claim(
        "20 Newsgroups, batches of 1000: stocBiO and MRBO(D) end more accurate than the single-loop methods",
        ("fig7a",),
        higher_end(("stocBiO", "MRBO(D)"), ("MRBO", "SUSTAIN", "MSTSA")),
    ),
    Claim(
        "20 Newsgroups, batches of 1000: stocBiO is the most accurate",
        ("fig7a",),
        higher_end(("stocBiO",), ("MRBO(D)", "MRBO", "VRBO", "SUSTAIN", "MSTSA")),
    ),
)
