"""What a report is made of, and the writing of it."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from bilax.report.styles import Style
from bilax.storage.files import write_text

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Method:
    """One curve of a figure."""

    name: str  # its label, and what the column "method" of the table says
    setting: str
    command: str  # a shell command that makes this curve again
    note: str = ""
    style: Style | None = None  # without it, that of its place in the figure


@dataclass(frozen=True)
class Figure:
    """Runs of several methods, measured along the way.

    The table has one row per measurement, in the order they were made: method, seed, the axes (seconds, k, samples,
    F, G, JV, HV, HINV), optionally status, and any metrics. NaN means "not measured".
    """

    name: str  # of the files, and the anchor in the page
    title: str
    caption: str
    table: "pandas.DataFrame"
    methods: tuple[Method, ...]  # in the order of the curves
    x: str = "seconds"  # shown first
    y: str = ""  # shown first; if there is no such metric, the first one is
    log_x: bool = False
    log_y: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  # of metrics, in words
    main: tuple[str, ...] = ()  # metrics in the table of final values
    short: str = ""  # in the list of contents; without it, the title


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim."""

    claim: str
    where: str
    variant: str
    verdict: str  # "holds", "fails" or "undecided"
    numbers: str  # the evidence
    short: str = ""  # of where; without it, where


@dataclass(frozen=True)
class Specimen:
    """One image of a gallery."""

    image: np.ndarray  # two-dimensional, of any range
    given: str
    true: str
    weight: float


@dataclass(frozen=True)
class Gallery:
    title: str
    note: str
    specimens: tuple[Specimen, ...]


@dataclass(frozen=True)
class Page:
    title: str
    introduction: str  # what was run; a blank line starts a paragraph
    figures: tuple[Figure, ...]
    verdicts: tuple[Verdict, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    answer: str = ""  # what came out, in one sentence
    about: str = ""  # what one need not know first, in paragraphs


def write(page: Page, folder: Path) -> Path:
    """Write ``report.html`` and ``figures/<name>.png`` and ``.pdf`` into a folder; return the path of the page."""
    from bilax.report import pictures

    _check(page)
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in page.figures:
        pictures.draw(figure, folder / "figures")
    path = folder / "report.html"
    # The hashes of the scripts are of text with "\n", so it must not become "\r\n" on Windows.
    write_text(path, assemble(page))
    return path


def assemble(page: Page) -> str:
    """Return the page as one string of HTML that refers to nothing outside of itself."""
    from bilax.report import html, sections
    from bilax.report.optional_imports import required

    parts = {name: resources.files("bilax.report").joinpath(name).read_text("utf-8") for name in _PARTS}
    plotly = required("plotly.offline").get_plotlyjs() if page.figures else ""
    body = [sections.figure(figure) for figure in page.figures]
    body += [sections.verdicts(page.verdicts)]
    body += [sections.gallery(gallery, number) for number, gallery in enumerate(page.galleries, 1)]
    body += [sections.facts(page.facts, page.about)]
    return Template(parts["page.html"]).substitute(
        title=html.escape(page.title),
        contents=sections.contents(page),
        introduction=html.paragraphs(page.introduction, class_="ran"),
        answer=html.tag("p", page.answer, class_="answer") if page.answer else "",
        body=html.join(body),
        policy=content_policy([plotly, parts["page.js"]]),
        style=parts["page.css"],
        plotly=plotly,
        script=parts["page.js"],
    )


_PARTS = ("page.html", "page.css", "page.js")


def content_policy(scripts: Iterable[str]) -> str:
    """Return a Content-Security-Policy: these scripts may run and no other, and nothing may be fetched."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _check(page: Page) -> None:
    names = [figure.name for figure in page.figures]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise ValueError(
                f"a figure is named {name!r}, but its name is also a file name and an anchor: "
                "use letters, digits, - and _ only, such as 'fig1a'."
            )
        # Windows and macOS do not tell Fig1 from fig1.
        if sum(other.lower() == name.lower() for other in names) > 1:
            raise ValueError(f"two figures are named {name!r}; give every figure a name of its own.")
    for figure in page.figures:
        methods = [method.name for method in figure.methods]
        twice = next((name for name in methods if methods.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two methods of {figure.name} are named {twice!r}; give every curve a name of its own.")
