"""The page of a cleaned table: the answer, the rows to look at, and decisions that can be exported."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from bilax.report.html import Html, data, escape, join, tag
from bilax.report.page import content_policy
from bilax.storage.files import write_text


@dataclass(frozen=True)
class Suspect:
    """One row to look at."""

    row: int  # counted from 1, as in the file
    id: str
    given: str
    suggested: str
    quality: float
    text: str = ""
    image: str = ""
    values: tuple[tuple[str, str], ...] = ()  # of the telling columns, the most telling first


@dataclass(frozen=True)
class Found:
    """All that the page shows."""

    title: str
    answer: str
    sure: tuple[str, ...]  # how sure, in sentences
    suspects: tuple[Suspect, ...]
    classes: tuple[str, ...]
    confusions: tuple[tuple[str, str, int], ...]  # given, suggested, how many rows
    columns: tuple[str, ...]  # what was done with them
    facts: tuple[tuple[str, str], ...]
    export: str  # the name of the file of decisions


def write(found: Found, path: Path) -> None:
    write_text(path, assemble(found))


def assemble(found: Found) -> str:
    """Return the page as one string of HTML that refers to nothing outside of itself."""
    part = {name: resources.files("bilax.cleaning").joinpath(name).read_text("utf-8") for name in _PARTS}
    style = resources.files("bilax.report").joinpath("page.css").read_text("utf-8") + part["clean.css"]
    body = join(
        [_suspects(found), _confusions(found), _list("What was done with the columns", found.columns), _facts(found)]
    )
    return Template(part["clean.html"]).substitute(
        title=escape(found.title),
        answer=escape(found.answer),
        sure=join(tag("p", sentence) for sentence in found.sure),
        body=body,
        data=data({"export": found.export}, id="settings"),
        policy=content_policy([part["clean.js"]]),
        style=style,
        script=part["clean.js"],
    )


_PARTS = ("clean.html", "clean.css", "clean.js")


def _suspects(found: Found) -> Html:
    if not found.suspects:
        nothing = tag("p", "No label looks wrong.", class_="empty")
        return tag("section", tag("h2", "The rows to look at first", id="worst"), nothing, aria_labelledby="worst")
    keys = tag(
        "p",
        tag("kbd", "a"), " agree, the label is wrong   ", tag("kbd", "d"), " disagree, it is right   ",
        tag("kbd", "u"), " undo   ", tag("kbd", "j"), " / ", tag("kbd", "k"), " next / previous",
        class_="keys",
    )  # fmt: skip
    bar = tag(
        "div",
        tag("output", f"0 of {len(found.suspects)} decided", id="decided", aria_live="polite"),
        tag("button", "Export the decisions (CSV)", id="export", type="button", disabled=True),
        class_="bar",
    )
    cards = [_card(number, suspect, found.classes) for number, suspect in enumerate(found.suspects)]
    return tag(
        "section",
        tag("h2", "The rows to look at first", id="worst"),
        keys,
        bar,
        tag("ol", *cards, class_="suspects", id="suspects"),
        aria_labelledby="worst",
    )


def _card(number: int, suspect: Suspect, classes: tuple[str, ...]) -> Html:
    name = f"row {suspect.row}" + (f", {suspect.id}" if suspect.id and suspect.id != str(suspect.row) else "")
    head = tag(
        "p",
        tag("b", name),
        tag("span", f"chance that the label is right: {suspect.quality:.1%}", class_="quality"),
        class_="head",
    )
    labels = tag(
        "p", "given ", tag("span", suspect.given, class_="given"), " → suggested ",
        tag("span", suspect.suggested, class_="suggested"), class_="labels",
    )  # fmt: skip
    shown = []
    if suspect.image:
        shown.append(tag("img", src=suspect.image, alt=f"{name}, given {suspect.given}", loading="lazy"))
    if suspect.text:
        shown.append(tag("p", suspect.text, class_="text"))
    if suspect.values:
        cells = [tag("div", tag("dt", column), tag("dd", value)) for column, value in suspect.values]
        shown.append(tag("dl", *cells))
    options = [tag("option", label, value=label, selected=label == suspect.suggested) for label in classes]
    buttons = tag(
        "div",
        tag("button", "Agree", type="button", class_="agree"),
        tag("label", "it is ", tag("select", *options, aria_label=f"true label of {name}")),
        tag("button", "Disagree", type="button", class_="disagree"),
        tag("span", "", class_="verdict", aria_live="polite"),
        class_="buttons",
    )
    return tag(
        "li", head, labels, *shown, buttons, class_="suspect", tabindex=0 if number == 0 else -1,
        data_row=suspect.row, data_id=suspect.id, data_given=suspect.given,
    )  # fmt: skip


def _confusions(found: Found) -> Html:
    if not found.confusions:
        return Html("")
    rows = [
        tag("tr", tag("td", given), tag("td", suggested), tag("td", f"{count:,}", class_="number"))
        for given, suggested, count in found.confusions
    ]
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in ("given", "suggested", "rows"))))
    table = tag(
        "div",
        tag("table", head, tag("tbody", *rows)),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label="confusions",
    )
    return tag("section", tag("h2", "What is taken for what", id="confusions"), table, aria_labelledby="confusions")


def _list(title: str, lines: tuple[str, ...]) -> Html:
    if not lines:
        return Html("")
    return tag("section", tag("h2", title), tag("ul", *(tag("li", line) for line in lines)))


def _facts(found: Found) -> Html:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in found.facts]
    return tag("section", tag("h2", "How this was made"), tag("table", tag("tbody", *rows)), class_="facts")
