"""How curves are drawn: the same in the page and in the pictures."""

from typing import NamedTuple


class Style(NamedTuple):
    light: str  # the colour on white paper
    dark: str  # and on a dark screen
    dash: tuple[int, ...]  # pixels drawn and left out, empty for a solid line
    marker: str  # in plotly's words


# Twelve colours found by search: each is at least three times as bright or dark as its background, no two are nearer
# than 0.13 in OKLab, and none nearer than 0.06 to eyes that lack one kind of cones.
COLOURS = (
    ("#1754ac", "#3c82be"),
    ("#8a55ed", "#a8a6f9"),
    ("#a35000", "#fd6602"),
    ("#4c876f", "#26ce7c"),
    ("#b96bad", "#f384c0"),
    ("#424b14", "#899e5e"),
    ("#d57700", "#fcf0a2"),
    ("#2098f5", "#6fddfc"),
    ("#6e607d", "#e4c0be"),
    ("#882255", "#c15d82"),
    ("#332288", "#8d5dfb"),
    ("#00a63f", "#a9eb3d"),
)
DASHES = ((), (8, 3), (2, 2), (9, 3, 2, 3), (14, 3, 2, 3, 2, 3))
MARKERS = {  # plotly's name -> matplotlib's, and a path around (0, 0) for the legend
    "circle": ("o", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    "square": ("s", "M-3.5-3.5h7v7h-7z"),
    "diamond": ("D", "M0-5L5 0L0 5L-5 0z"),
    "triangle-up": ("^", "M0-4.5L4.6 3.5H-4.6z"),
    "triangle-down": ("v", "M0 4.5L4.6-3.5H-4.6z"),
    "cross": ("P", "M-1.6-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z"),
    "hourglass": ("X", "M-4.5-4.5H4.5L-4.5 4.5H4.5z"),
}


def style_of(number: int, variant: int = 0) -> Style:
    """Return how a curve is drawn; its variants have its colour, with other dashes and marks.

    The lengths of the lists have no common factor: the first 35 numbers differ without their colour, and two numbers
    with the same colour differ in dash and in mark.
    """
    light, dark = COLOURS[number % len(COLOURS)]
    place = number + variant
    return Style(light, dark, DASHES[place % len(DASHES)], tuple(MARKERS)[place % len(MARKERS)])
