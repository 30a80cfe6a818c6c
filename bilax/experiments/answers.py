"""What runs say, in one sentence."""

import math
from collections import Counter
from collections.abc import Sequence

from bilax.experiments.metrics import METRICS
from bilax.report import Figure
from bilax.report.chart import Chart
from bilax.report.curves import SeedRun, last


def answer(figures: Sequence[Figure]) -> str:
    """Say which method ends best: by how much in one figure, how often in several."""
    ranked = [(figure, order) for figure in figures if (order := ranking(figure))]
    if not ranked:
        return ""
    if len(ranked) == 1:
        return _of_one(*ranked[0])
    sure = [(figure, order) for figure, order in ranked if len(order) == 1 or _apart(figure, order[0][0], order[1][0])]
    if not sure:
        return f"In none of {len(ranked)} figures a method ends before all others with every seed"
    wins = Counter(order[0][0].partition("[")[0] for _, order in sure)  # without the setting
    most = max(wins.values())
    if most == 1 and len(wins) > 1:
        each = "each" if len(sure) == len(ranked) else f"{len(sure)}"
        return f"In {each} of {len(ranked)} figures another method ends best"
    best = [name for name, count in wins.items() if count == most]
    if len(best) == 1:
        return f"{best[0]} ends best in {most} of {len(ranked)} figures"
    return f"{', '.join(best[:-1])} and {best[-1]} end best in {most} of {len(ranked)} figures each"


def _of_one(figure: Figure, order: list[tuple[str, float]]) -> str:
    column = Chart(figure).y
    words = f"{'highest' if _larger(column) else 'lowest'} {Chart(figure).label(column)}"
    (best, value), *others = order
    if not others:
        return f"{best} ends with the {words}: {value:.3g}"
    second, next_value = others[0]
    if not _apart(figure, best, second):
        return f"{best} and {second} end alike, with the {words}: {value:.3g} and {next_value:.3g}"
    return f"{best} ends with the {words}: {value:.3g}, before {second} with {next_value:.3g}"


def _apart(figure: Figure, best: str, second: str) -> bool:
    """Tell whether every seed of one method ends better than every seed of the other."""
    chart = Chart(figure)
    runs = dict(zip((method.name for method in figure.methods), chart.runs, strict=True))
    sign = -1 if _larger(chart.y) else 1
    ours, theirs = ([sign * last([run], chart.y) for run in runs[name]] for name in (best, second))
    return max(ours) < min(theirs)


def ranking(figure: Figure) -> list[tuple[str, float]]:
    """Return the methods that did not diverge with the median over seeds of their last value, the best first."""
    chart = Chart(figure)
    if chart.empty:
        return []
    ends = {
        method.name: last(some, chart.y)
        for method, some in zip(figure.methods, chart.runs, strict=True)
        if some and not any(map(_diverged, some))
    }
    sign = -1 if _larger(chart.y) else 1
    return sorted(((name, end) for name, end in ends.items() if math.isfinite(end)), key=lambda pair: sign * pair[1])


def _larger(column: str) -> bool:
    return column in METRICS and METRICS[column].larger_is_better


def _diverged(run: SeedRun) -> bool:
    return "status" in run and run["status"][-1] in ("diverged", "failed")
