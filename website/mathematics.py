"""Formulas in LaTeX become MathML while the site is built, so that no page needs a script or a font for them."""

import html
import re

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves in a page.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
UNDER = re.compile(r"<msub><mo>min</mo>(<mi>[^<]*</mi>)</msub>")  # what is minimised belongs under the word
MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML" {attributes}>{inside}</math>'


def rendered(page: str) -> str:
    """Return the HTML of a page with its formulas in MathML."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found[3]).strip(), block=found[2] == "["), page)


def mathml(formula: str, block: bool = False) -> str:
    """Return a formula in MathML; one of several rows is aligned at its signs &.

    >>> mathml("x_1").partition(">")[2]
    '<mrow><msub><mi>x</mi><mn>1</mn></msub></mrow></math>'
    """
    formula = re.sub(r"\\(begin|end)\{aligned\}", "", formula)
    rows = [row.split("&") for row in re.split(r"\\\\", formula)]
    if len(rows) == 1 and len(rows[0]) == 1:
        inside = _inside(formula, block)
    else:
        inside = f'<mtable class="aligned" displaystyle="true">{"".join(map(_row, rows))}</mtable>'
    # In what a search shows, a formula of its own would be a row of letters.
    attributes = 'display="block" data-search-exclude=""' if block else 'display="inline"'
    return MATH.format(attributes=attributes, inside=inside)


def _row(cells: list[str]) -> str:
    sides = (("right", "left")[number % 2] for number in range(len(cells)))
    inside = (
        f'<mtd style="text-align: {side}">{_inside(cell, block=True)}</mtd>'
        for side, cell in zip(sides, cells, strict=False)
    )
    return f"<mtr>{''.join(inside)}</mtr>"


def _inside(formula: str, block: bool) -> str:
    """Return the content of a formula's element <math>; refuse what the converter does not know."""
    formula = formula.replace(r"\arg", r"\operatorname{arg}").replace("\n", " ")
    for size in (r"\Big", r"\big"):
        formula = re.sub(re.escape(size) + r"(?![a-zA-Z])", "", formula)
    inside = re.fullmatch(
        r"<math[^>]*>(.*)</math>", convert(formula, display="block" if block else "inline"), re.DOTALL
    )
    if inside is None or "\\" in inside[1] or "<mi>&</mi>" in inside[1]:
        raise ValueError(f"latex2mathml cannot convert {formula!r}: {inside and inside[1]}")
    return UNDER.sub(r"<munder><mo>min</mo>\1</munder>", inside[1]) if block else inside[1]
