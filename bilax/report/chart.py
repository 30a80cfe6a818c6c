"""What a figure shows, worked out once for the page and for the pictures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bilax.report import curves
from bilax.report.labels import label
from bilax.report.page import Figure
from bilax.report.styles import Style, style_of


@dataclass(frozen=True)
class Chart:
    """A figure with its runs taken apart."""

    figure: Figure

    @cached_property
    def runs(self) -> list[list[curves.SeedRun]]:
        """The runs of every method."""
        return [curves.runs(self.figure.table, method.name) for method in self.figure.methods]

    @cached_property
    def columns(self) -> tuple[list[str], list[str]]:
        """The axes and the metrics that can be chosen."""
        return curves.columns([run for some in self.runs for run in some])

    @property
    def empty(self) -> bool:
        return not all(self.columns)

    @property
    def x(self) -> str:
        """The axis shown first: the one asked for, or else the first there is."""
        return self.figure.x if self.figure.x in self.columns[0] else self.columns[0][0]

    @property
    def y(self) -> str:
        return self.figure.y if self.figure.y in self.columns[1] else self.columns[1][0]

    def curves(self, x: str, y: str) -> list[curves.Curve | None]:
        """The curve of every method, None for one that measured nothing."""
        return [curves.along(some, x, y) for some in self.runs]

    @cached_property
    def labels(self) -> list[str]:
        """The names of the curves, with a warning where the curve alone would mislead."""
        labels = []
        for method, some in zip(self.figure.methods, self.runs, strict=True):
            lost = sum(run["status"][-1] == "diverged" for run in some if "status" in run)
            # The curve ends where the first seed has diverged.
            warning = f" ({lost} of {len(some)} seeds diverged)" if lost else "" if some else " (no runs)"
            labels.append(method.name + warning)
        return labels

    @property
    def styles(self) -> list[Style]:
        return [method.style or style_of(number) for number, method in enumerate(self.figure.methods)]

    def label(self, column: str) -> str:
        """The name of a column in words."""
        return label(column, self.figure.labels)

    def spread(self) -> str:
        """Say what lines and bands are."""
        counts = sorted({len(some) for some in self.runs if some})
        if not counts:
            return ""
        if counts == [1]:
            return "Lines: one seed per method, hence no bands."
        range_ = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        few, many = not curves.quartiles(counts[0]), curves.quartiles(counts[-1])
        band = "from the lowest to the highest seed" if few else "from the first to the third quartile"
        if few and many:
            band = f"quartiles, or lowest to highest for methods with fewer than {curves.QUARTILES_FROM} seeds"
        alone = ", for methods with two seeds or more" if counts[0] == 1 else ""
        return f"Lines: median over {range_} seeds, as far as all seeds of a method go. Bands: {band}{alone}."

    def payload(self) -> dict[str, Any]:
        """Return all that page.js needs, every list of numbers once.

        Most lists are needed again and again: all counters are functions of the iteration, so that the curves along
        them differ in their x only. A curve is therefore the numbers of four lists, x, middle, low and high, and the
        number of its seeds.
        """
        axes, metrics = self.columns
        pool: dict[tuple, int] = {}
        drawn: dict[str, dict[str, list]] = {x: {} for x in axes}
        for x in axes:
            for y in metrics:
                drawn[x][y] = [
                    curve and [*(pool.setdefault(_short(part), len(pool)) for part in curve[:4]), curve.seeds]
                    for curve in self.curves(x, y)
                ]
        return {
            "words": {name: self.label(name) for name in (*axes, *metrics)},
            "methods": self.labels,
            "looks": [style._asdict() for style in self.styles],
            "views": {y: curves.view(self.curves(axes[0], y)) for y in metrics},
            "starts": {x: {y: curves.start(self.curves(x, y)) for y in metrics} for x in axes},
            "curves": drawn,
            "pool": list(pool),
        }


def _short(values: np.ndarray) -> tuple[float | None, ...]:
    """Return numbers as they are written into the page: five digits are finer than any screen."""
    return tuple(_number(float(f"{value:.5g}")) if np.isfinite(value) else None for value in values.tolist())


def _number(value: float) -> float:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
