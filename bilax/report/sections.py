"""The sections of the page, as HTML."""

import math
from collections import Counter

from bilax.report import curves
from bilax.report.chart import Chart
from bilax.report.html import Html, data, join, paragraphs, tag
from bilax.report.page import Figure, Gallery, Page, Verdict
from bilax.report.pictures import specimen
from bilax.report.styles import MARKERS, Style

BESIDE = 30  # letters of the longest name that is still put beside the curves
MANY = 14  # curves whose names stand in two columns
_SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?"}  # so that nothing is said by colour alone


def contents(page: Page) -> Html:
    """Return links to the sections: a side bar, or a drawer and what opens it."""
    links = [(figure.name, figure.short or figure.title) for figure in page.figures]
    links += [("page-verdicts", "Verdicts")] if page.verdicts else []
    links += [(f"page-gallery-{number}", gallery.title) for number, gallery in enumerate(page.galleries, 1)]
    links += [("page-facts", "How this was made")] if page.facts or page.about else []
    if len(links) < 2:
        return Html("")
    items = [tag("li", tag("a", text, href=f"#{anchor}")) for anchor, text in links]
    opens = tag("button", "☰ Contents", type="button", popovertarget="page-contents", class_="open-contents")
    title = tag("p", "On this page", class_="title", aria_hidden="true")
    nav = tag("nav", title, tag("ol", *items), id="page-contents", popover="auto", aria_label="On this page")
    return join([opens, nav])


def verdicts(some: tuple[Verdict, ...]) -> Html:
    """Return a row for every claim, with a cell for every variant that says what each figure says."""
    if not some:
        return Html("")
    variants = list(dict.fromkeys(verdict.variant for verdict in some))
    rows = []
    for claim in dict.fromkeys(verdict.claim for verdict in some):
        mine = [verdict for verdict in some if verdict.claim == claim]
        cells = []
        for variant in variants:
            found = [one for one in mine if one.variant == variant]
            cells.append(tag("td", *(_finding(one) for one in found), data_variant=variant))
        rows.append(tag("tr", tag("th", tag("p", claim), _evidence(mine), scope="row"), *cells))
    decided = any(verdict.verdict in ("holds", "fails") for verdict in some)
    tally = f" In all figures and variants: {_tally(sorted(verdict.verdict for verdict in some))}."
    count = f"{len(rows)} {'claim' if len(rows) == 1 else 'claims'}."
    return tag(
        "section",
        tag("h2", "Verdicts", id="page-verdicts-title"),
        tag(
            "details",
            tag("summary", count, tag("span", tally, class_="tally")),
            _table(("Claim", *variants), rows, "Verdicts", id="page-verdict-rows"),
            open=decided,
        ),
        id="page-verdicts",
        class_="verdicts",
        aria_labelledby="page-verdicts-title",
    )


def _finding(verdict: Verdict) -> Html:
    where = tag("span", verdict.short or verdict.where, class_="where")
    return tag("div", where, " ", _badge(verdict.verdict), class_="finding")


def _evidence(some: list[Verdict]) -> Html:
    entries = [join([tag("dt", f"{one.where}, {one.variant}"), tag("dd", one.numbers)]) for one in some if one.numbers]
    return tag("details", tag("summary", "Numbers"), tag("dl", *entries)) if entries else Html("")


def figure(shown: Figure) -> Html:
    """Return a chart with its controls, the table of final values, and how to make the curves again."""
    chart, title = Chart(shown), f"{shown.name}-title"
    if chart.empty:
        body = tag("p", "There are no measurements to draw.", class_="empty")
    else:
        # Names beside the curves if they are short enough to stand in a column, and else below.
        beside = max(map(len, chart.labels)) <= BESIDE
        place = tag("div", class_="chart", role="group", aria_label=shown.title)
        body = join(
            [
                tag("div", place, _legend(chart), class_="picture beside" if beside else "picture"),
                tag("p", class_="remark", aria_live="polite"),
                _controls(chart),
                data(chart.payload()),
            ]
        )
    spread = tag("p", chart.spread(), class_="spread") if chart.spread() else ""
    head = tag("h2", shown.title, id=title)
    return tag(
        "section",
        tag("div", head, paragraphs(shown.caption, class_="caption"), body, spread, class_="together"),
        _finals(chart),
        _recipes(chart),
        id=shown.name,
        class_="figure",
        aria_labelledby=title,
    )


def _legend(chart: Chart) -> Html:
    buttons = tag(
        "span",
        tag("button", "all", type="button", data_all="1", aria_label="Show all curves"),
        tag("button", "none", type="button", data_all="", aria_label="Hide all curves"),
        class_="buttons",
    )
    entries = []
    for number, (label, style, some) in enumerate(zip(chart.labels, chart.styles, chart.runs, strict=True)):
        box = tag("input", type="checkbox", name="method", value=number, checked=bool(some), disabled=not some)
        entries.append(tag("label", box, _swatch(style), tag("span", _breakable(label)), class_="method"))
    kind = "controls methods many" if len(entries) > MANY else "controls methods"
    return tag("fieldset", tag("legend", "Curves"), *entries, buttons, class_=kind)


def _breakable(label: str) -> Html:
    """Return a label that may go on in the next line after a comma, rather than inside a number."""
    return join(label.replace(",", ",\0").split("\0"), tag("wbr"))


def _controls(chart: Chart) -> Html:
    axes, metrics = chart.columns
    return tag(
        "div",
        _select("y", "Vertical axis", metrics, chart),
        _checkbox("log_y", "log y", chart.figure.log_y),
        _select("x", "Horizontal axis", axes, chart),
        _checkbox("log_x", "log x", chart.figure.log_x),
        class_="controls",
        role="group",
        aria_label=f"What is drawn in {chart.figure.title}",
    )


def _select(name: str, label: str, columns: list[str], chart: Chart) -> Html:
    chosen = getattr(chart, name)
    options = [tag("option", chart.label(column), value=column, selected=column == chosen) for column in columns]
    return tag("label", f"{label} ", tag("select", *options, name=name))


def _checkbox(name: str, label: str, checked: bool) -> Html:
    return tag("label", tag("input", type="checkbox", name=name, checked=checked), f" {label}")


def _swatch(style: Style) -> Html:
    line = tag("path", d="M0 7H34", stroke_dasharray=" ".join(map(str, style.dash)) or None, class_="line")
    marker = tag("path", d=MARKERS[style.marker][1], transform="translate(17 7)", class_="marker")
    colours = f"--light:{style.light};--dark:{style.dark}"
    return tag("svg", line, marker, viewBox="0 0 34 14", class_="swatch", style=colours, aria_hidden="true")


def _finals(chart: Chart) -> Html:
    """Return the table of the last values: medians over seeds."""
    if chart.empty:
        return Html("")
    axes, metrics = chart.columns
    shown = list(dict.fromkeys([chart.y, *(name for name in chart.figure.main if name in metrics)]))
    shown += [name for name in ("seconds", "k", "samples") if name in axes]
    status = any("status" in run for some in chart.runs for run in some)
    rows = []
    for method, style, some in zip(chart.figure.methods, chart.styles, chart.runs, strict=True):
        cells = [_value(curves.last(some, column)) for column in shown] + [str(len(some))]
        inside = [tag("th", _swatch(style), _breakable(method.name), scope="row")]
        inside += [tag("td", cell, class_="number") for cell in cells]
        if status:
            ends = [str(run["status"][-1]) for run in some]
            inside.append(tag("td", ends[0] if len(set(ends)) == 1 else _tally(ends), class_="status"))
        rows.append(tag("tr", *inside))
    heads = ["Method", *(chart.label(column) for column in shown), "seeds", *(["status"] if status else [])]
    return _table(heads, rows, "Final values: median over seeds of the last one measured")


def _recipes(chart: Chart) -> Html:
    if not chart.figure.methods:
        return Html("")
    entries = [
        join(
            [
                tag("dt", _swatch(style), method.name),
                tag("dd", tag("code", method.setting)) if method.setting else "",
                tag("dd", method.note, class_="note") if method.note else "",
                tag("dd", tag("pre", tag("code", method.command), tabindex=0)) if method.command else "",
            ]
        )
        for style, method in zip(chart.styles, chart.figure.methods, strict=True)
    ]
    return tag("details", tag("summary", "Settings, notes and commands"), tag("dl", *entries))


def gallery(shown: Gallery, number: int) -> Html:
    cards = []
    for one in shown.specimens:
        wrong = one.given != one.true
        label = f"given {one.given}, truly {one.true}"
        lines = [
            tag("span", f"given {one.given}", class_="given"),
            tag("span", f"wrong: is {one.true}" if wrong else "right", class_="wrong" if wrong else "right"),
            tag("span", f"weight {_value(one.weight, 2)}", class_="weight"),
        ]
        image = tag("img", src=specimen(one.image), alt=label, width=64, height=64)
        cards.append(tag("li", image, *lines, class_="specimen"))
    title = f"page-gallery-{number}-title"
    return tag(
        "section",
        tag("h2", shown.title, id=title),
        paragraphs(shown.note),
        tag("ul", *cards) if cards else tag("p", "There are no images to show.", class_="empty"),
        id=f"page-gallery-{number}",
        class_="gallery",
        aria_labelledby=title,
    )


def facts(some: tuple[tuple[str, str], ...], about: str = "") -> Html:
    if not some and not about:
        return Html("")
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in some]
    head = tag("h2", "How this was made", id="page-facts-title")
    inside = _scroll(tag("table", tag("tbody", *rows)), "How this was made") if rows else ""
    return tag(
        "section", head, paragraphs(about), inside, id="page-facts", class_="facts", aria_labelledby="page-facts-title"
    )


def _table(heads, rows: list[Html], caption: str, **attributes) -> Html:
    # A head of several words has room for two of them, so that it does not become a column of words.
    cells = [tag("th", text, scope="col", class_="long" if len(text.split()) > 2 else None) for text in heads]
    head = tag("thead", tag("tr", *cells))
    return _scroll(tag("table", tag("caption", caption), head, tag("tbody", *rows, **attributes)), caption)


def _scroll(table: Html, label: str) -> Html:
    """Return a table that scrolls inside its own box, also by keyboard."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _badge(verdict: str) -> Html:
    known = verdict if verdict in _SIGNS else "undecided"
    sign = tag("span", _SIGNS.get(verdict, "·"), aria_hidden="true")
    return tag("span", sign, f" {verdict}", class_=f"badge {known}")


def _tally(things) -> str:
    return ", ".join(f"{thing}: {count}" for thing, count in Counter(things).items())


def _value(value: float, digits: int = 4) -> str:
    if math.isnan(value):
        return "—"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.{digits}g}"
