"""Figures as PNG and PDF, and the small images of a gallery."""

import base64
import io
import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from bilax.report import curves
from bilax.report.chart import Chart
from bilax.report.optional_imports import required
from bilax.report.page import Figure
from bilax.report.styles import MARKERS
from bilax.storage.files import replacing

_STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,  # letters stay letters, as publishers ask
}
_RESOLUTION = 150
_WIDEST = 84  # letters of a legend
# Without the date, the same runs give the same file.
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as it is first shown, as PNG and as PDF."""
    matplotlib = required("matplotlib")
    figures = required("matplotlib.figure")
    chart = Chart(figure)
    with matplotlib.rc_context(_STYLE):
        # Not by pyplot: it would keep the figure, and choose a window to show it in.
        rows = math.ceil(len(figure.methods) / _columns(chart))
        sheet = figures.Figure(figsize=(7.5, 5 + 0.22 * max(0, rows - 3)), layout="constrained")
        axis = sheet.add_subplot()
        # A dollar is a dollar, not the start of a formula.
        axis.set_title(textwrap.fill(figure.title, 80), fontsize=11, loc="left", pad=12, parse_math=False)
        if chart.empty:
            axis.text(0.5, 0.5, "no measurements", ha="center", va="center", transform=axis.transAxes, color="#666")
            axis.axis("off")
        else:
            _fill(sheet, axis, chart)
        paths = [folder / f"{figure.name}.{kind}" for kind in _METADATA]
        for path, metadata in zip(paths, _METADATA.values(), strict=True):
            with replacing(path) as file:
                sheet.savefig(file, dpi=_RESOLUTION, metadata=metadata, format=path.suffix[1:])
    return paths


def _fill(sheet: Any, axis: Any, chart: Chart) -> None:
    figure, drawn = chart.figure, chart.curves(chart.x, chart.y)
    lines, names = [], []
    start = curves.start(drawn) if figure.log_x else None
    for number, (label, style, curve) in enumerate(zip(chart.labels, chart.styles, drawn, strict=True)):
        if curve is None:
            continue
        # matplotlib measures dashes in widths of the line.
        dash = (0, tuple(part / 2 for part in style.dash)) if style.dash else "solid"
        points = max(1, round(len(curve.x) / 8))
        x = np.where(curve.x == 0, start.place, curve.x) if start else curve.x
        lines += axis.plot(
            x, curve.middle, color=style.light, lw=1.8, ls=dash,
            marker=MARKERS[style.marker][0], markersize=5, markevery=(number % points, points),
        )  # fmt: skip
        axis.fill_between(x, curve.low, curve.high, color=style.light, alpha=0.14, lw=0)
        names.append(label)
    axis.set_xlabel(chart.label(chart.x), parse_math=False)
    axis.set_ylabel(chart.label(chart.y), parse_math=False)
    if figure.log_x:
        axis.set_xscale("log", nonpositive="mask")
        _ticks(axis.xaxis)
        if start:
            _begin_at_zero(axis.xaxis, start)
    if figure.log_y:
        axis.set_yscale("log", nonpositive="mask")
        _ticks(axis.yaxis)
        if lost := [
            name for name, curve in zip(chart.labels, drawn, strict=True) if curve and (curve.middle <= 0).any()
        ]:
            _remark(axis, f"0 and less have no logarithm and are not drawn: {', '.join(lost)}")
    elif view := curves.view(drawn):
        axis.set_ylim(view)
    names = [textwrap.fill(name, _WIDEST) for name in names]
    columns = _columns(chart)
    legend = sheet.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _remark(axis: Any, text: str) -> None:
    place = {"xy": (0, 1), "xycoords": "axes fraction", "xytext": (0, 3), "textcoords": "offset points"}
    axis.annotate(textwrap.shorten(text, 110), **place, fontsize=8, color="#666", parse_math=False)


def _columns(chart: Chart) -> int:
    """Return how many columns of names are as wide as the picture, or narrower."""
    longest = max(map(len, chart.labels), default=0)
    return next((columns for columns in (4, 3, 2) if longest <= _WIDEST / columns - 8), 1)


def _ticks(axis: Any) -> None:
    """Label a logarithmic axis that spans few powers of ten by 0.5, 1, 2, 5 and so on."""
    low, high = axis.get_view_interval()
    if high < 1000 * low:
        axis.set_major_locator(required("matplotlib.ticker").LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def _begin_at_zero(axis: Any, start: curves.Start) -> None:
    """Let the first tick of a logarithmic axis be 0, and have none between it and the first measurement."""
    ticker = required("matplotlib.ticker")
    name = axis.get_major_formatter()
    low, high = axis.get_view_interval()
    major, minor = (
        [tick for tick in locator.tick_values(low, high) if start.first <= tick <= high]
        for locator in (axis.get_major_locator(), axis.get_minor_locator())
    )
    axis.set_major_locator(ticker.FixedLocator([start.place, *major]))
    axis.set_minor_locator(ticker.FixedLocator(minor))
    axis.set_major_formatter(lambda value, place: "0" if value == start.place else name(value, place))
    axis.set_minor_formatter("")


def specimen(image: np.ndarray) -> str:
    """Return an image as a data URI: its lowest value white, like paper, its highest black."""
    pillow = required("PIL.Image")
    values = np.asarray(image, float)
    if values.ndim != 2:
        raise ValueError(f"the image of a specimen has the shape {values.shape}; give a two-dimensional one.")
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    ink = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    buffer = io.BytesIO()
    pillow.fromarray((255 * (1 - ink)).round().astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
