"""Labels for the columns of a table, and styles for the curves: the same in the page and in the pictures."""

from collections.abc import Mapping
from typing import NamedTuple

AXES = {
    "seconds": "time in seconds",
    "k": "outer iterations",
    "samples": "samples used",
    "F": "gradients of the outer loss",
    "G": "gradients of the inner loss",
    "JV": "Jacobian-vector products",
    "HV": "Hessian-vector products",
    "HINV": "Hessian factorisations",
}
METRICS = {  # of every run; a figure brings the labels of its own metrics
    "norm_v": "norm of the hypergradient estimate",
    "norm_u": "norm of the inner gradient estimate",
    "residual": "residual of the linear system",
}
NOT_MEASURED = ("method", "seed", "status")  # columns that are neither axis nor metric


def label(column: str, own: Mapping[str, str] = {}) -> str:  # the default is never changed
    """Return the name of a column in words.

    >>> label("val_loss", {"val_loss": "loss on the trusted samples"}), label("norm_of_x")
    ('loss on the trusted samples', 'norm of x')
    """
    return own.get(column) or AXES.get(column) or METRICS.get(column) or column.replace("_", " ")


class Style(NamedTuple):
    light: str  # the colour on white paper
    dark: str  # and on a dark screen
    dash: tuple[int, ...]  # pixels drawn and left out, empty for a solid line
    marker: str  # in plotly's words


# Okabe and Ito's colours, which the colour-blind can tell apart, without the yellow and the black that one of the
# backgrounds would swallow; then three of Tol's. The second of each pair is a lighter one of the same hue.
COLOURS = (
    ("#0072b2", "#5aa9e6"),
    ("#d55e00", "#ff8a4c"),
    ("#009e73", "#34c9a0"),
    ("#cc79a7", "#e79cc6"),
    ("#e69f00", "#f4b942"),
    ("#56b4e9", "#a5dcff"),
    ("#555555", "#c9cdd3"),
    ("#882255", "#d5699a"),
    ("#8c8c1f", "#cbc95c"),
    ("#332288", "#a195f2"),
)
DASHES = ((), (8, 3), (2, 2), (9, 3, 2, 3), (14, 4))
MARKERS = {  # plotly's name -> matplotlib's, and a path around (0, 0) for the legend
    "circle": ("o", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    "square": ("s", "M-3.5-3.5h7v7h-7z"),
    "diamond": ("D", "M0-5L5 0L0 5L-5 0z"),
    "triangle-up": ("^", "M0-4.5L4.6 3.5H-4.6z"),
    "triangle-down": ("v", "M0 4.5L4.6-3.5H-4.6z"),
    "cross": ("P", "M-1.6-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z"),
    "hourglass": ("X", "M-4.5-4.5H4.5L-4.5 4.5H4.5z"),
}


def style_of(number: int) -> Style:
    """Return how a curve is drawn; the lists' lengths make the first 70 differ, and neighbours differ even in grey."""
    light, dark = COLOURS[number % len(COLOURS)]
    return Style(light, dark, DASHES[number % len(DASHES)], tuple(MARKERS)[number % len(MARKERS)])
