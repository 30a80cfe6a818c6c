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
    wins = Counter(order[0][0].partition("[")[0] for _, order in ranked)  # without the setting
    most = max(wins.values())
    if most == 1:
        return f"In each of {len(ranked)} figures another method ends best"
    best = [name for name, count in wins.items() if count == most]
    if len(best) == 1:
        return f"{best[0]} ends best in {most} of {len(ranked)} figures"
    return f"{', '.join(best[:-1])} and {best[-1]} end best in {most} of {len(ranked)} figures each"


def _of_one(figure: Figure, order: list[tuple[str, float]]) -> str:
    column = Chart(figure).y
    words = f"{'highest' if _larger(column) else 'lowest'} {Chart(figure).label(column)}"
    (best, value), *others = order
    second = f", before {others[0][0]} with {others[0][1]:.3g}" if others else ""
    return f"{best} ends with the {words}: {value:.3g}{second}"


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
