"""The parts of pages that are made from the code: gallery, command line, methods."""

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
THUMBNAILS = ROOT / "docs" / "images" / "gallery"


def filled(markdown: str, uri: str) -> str:
    """Return a page with what belongs at its marks."""
    for mark, make in MARKS.items():
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", make())
    return markdown


SHARED = ROOT / "examples" / "_recipe.py"


def examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("[!_]*.py"))


def gallery() -> str:
    """Return a card for every example: its picture, what it says of itself, its file."""
    cards = []
    for path in examples():
        picture = THUMBNAILS / f"{path.stem}.png"
        if not picture.is_file():
            raise FileNotFoundError(f"{path.name} has no picture in docs/images/gallery; run: make gallery")
        first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or path.stem).splitlines()[0]
        file = f"project/examples/{path.name}"
        parts = [
            '<div class="card" markdown>',
            f"## {path.name}",
            f"![What {path.name} draws](images/gallery/{picture.name}){{ loading=lazy }}",
            first,
            f"[Download]({file}){{ download={path.name} }}",
            "</div>",
        ]
        cards.append("\n\n".join(parts))
    return '<div class="gallery" markdown>\n\n' + "\n\n".join(cards) + "\n\n</div>"


def alone(path: Path) -> str:
    """Return an example as one file: what it takes from the one that recipes share is written out in it."""
    text = path.read_text("utf-8")
    asked = re.search(rf"^from {SHARED.stem} import (.+)\n", text, re.MULTILINE)
    if asked is None:
        return text
    shared = SHARED.read_text("utf-8")
    nodes, lines = ast.parse(shared).body, shared.splitlines()
    defined = {node.name: node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    wanted = asked[1].split(", ")
    for name in wanted:  # which grows
        used = {node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)}
        wanted += [other for other in defined if other in used and other not in wanted]
    parts = []
    for name, node in defined.items():
        if name in wanted:
            first = min(one.lineno for one in (node, *node.decorator_list))
            parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    names = {node.id for name in wanted for node in ast.walk(defined[name]) if isinstance(node, ast.Name)}
    imports = [line for node in nodes if _binds(node) & names and (line := lines[node.lineno - 1]) + "\n" not in text]
    standard = [line for line in imports if line.split()[1] in sys.stdlib_module_names]
    text = text.replace(asked[0], "".join(f"{line}\n" for line in imports if line not in standard))
    places = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    first, last = places[0].lineno - 1, places[-1].end_lineno or 0
    rows = text.splitlines()
    head = [*rows[:first], *standard, "", *rows[first:last]]
    return "\n".join([*head, "", "", "\n\n\n".join(parts), "", *rows[last:]]) + "\n"


def _binds(node: ast.stmt) -> set[str]:
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return set()
    return {(one.asname or one.name).partition(".")[0] for one in node.names}


def methods() -> str:
    """Return the reference of every registered method."""
    from bilax.algorithms import ALGORITHMS

    return "\n\n".join(_reference(name, cls) for name, cls in ALGORITHMS.items())


def choice() -> str:
    """Return what methods ask of a problem and of a machine, and which those are."""
    from bilax.cli.catalogue import catalogue

    entries = catalogue()

    def those(fits: Callable[[dict[str, Any]], bool]) -> str:
        return ", ".join(f"`{entry['name']}`" for entry in entries if fits(entry)) or "none"

    needs = "second derivatives", "keeps", "full passes"
    rows = {
        "The inner loss has no second derivatives, or they are too dear": those(lambda e: e["needs"][needs[0]] == "no"),
        "Data that cannot be gone through as a whole: only batches": those(
            lambda e: not e["needs"][needs[2]] and "deterministic" not in e["variance-reduced"]
        ),
        "All data in every step, for which these were analysed (they take batches, too)": those(
            lambda e: "deterministic" in e["variance-reduced"]
        ),
        "Data that may be gone through once, at the start": those(lambda e: e["needs"][needs[2]] == "at the start"),
        "Data that may be gone through again and again": those(lambda e: e["needs"][needs[2]] == "again and again"),
        "Few inner variables: dense matrices of their size fit": those(lambda e: "y y" in e["needs"][needs[1]]),
        "Memory for a row per block of data fits": those(lambda e: "n/S" in e["needs"][needs[1]]),
        "Memory is short: nothing is kept but x and y": those(lambda e: e["needs"][needs[1]] == "x, y"),
        "One step of each variable at a time (single loop)": those(lambda e: e["loops"] == "single"),
        "The inner problem is solved better before x moves (double loop)": those(lambda e: e["loops"] == "double"),
    }
    lines = ["| you have | methods |", "| --- | --- |", *(f"| {what} | {which} |" for what, which in rows.items())]
    return "\n".join(lines) + "\n\n" + _needs(entries)


def _needs(entries: list[dict[str, Any]]) -> str:
    heads = "method", "loops", "variance-reduced", "second derivatives", "keeps", "full passes"
    lines = ["## By what a method needs", "", f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for entry in entries:
        cells = [f"`{entry['name']}`", entry["loops"], entry["variance-reduced"], *entry["needs"].values()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _reference(name: str, cls: Any) -> str:
    told = f"`{name}` on the command line. Proven: {cls.about.complexity}. {cls.about.reference}."
    return f"::: bilax.{cls.__name__}\n    options:\n      members: false\n\n{told}"


def commands() -> str:
    """Return what ``bilax COMMAND --help`` says, for every command."""
    import typer

    from bilax.cli.app import app

    return "\n\n".join(_command(name, command) for name, command in typer.main.get_command(app).commands.items())


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join(["bilax", name, *(_metavar(one) for one in arguments), "[OPTIONS]"])
    rows = ["| name | meaning | default |", "| --- | --- | --- |", *map(_row, arguments)]
    rows += [_row(one) for one in command.params if one not in arguments]
    examples = "\n".join(_plain(command.epilog).partition(": ")[2].split(", "))
    parts = [f"## bilax {name}", _plain(command.help), f"```sh\n{usage}\n```", "\n".join(rows)]
    return "\n\n".join([*parts, f"```sh\n{examples}\n```"])


def _metavar(argument: Any) -> str:
    return argument.name.upper() if argument.required else f"[{argument.name.upper()}]"


def _row(one: Any) -> str:
    name = one.name.upper() if one.param_type_name == "argument" else ", ".join(one.opts)
    told, said = _plain(one.help), ""
    if "[default:" in told:  # said in words, because it depends
        told, said = told.split("[default:")[0].strip(), told.split("[default:")[1].rstrip("] ")
    elif one.required:
        said = "required"
    elif not (one.default is None or one.default is False or callable(one.default)):
        said = f"`{one.default}`"
    return f"| `{name}` | {told} | {said} |".replace("...", "…")


def _plain(text: str | None) -> str:
    """Return a text without the markup of the terminal."""
    from rich.text import Text

    return Text.from_markup(text or "").plain


MARKS: dict[str, Callable[[], str]] = {"gallery": gallery, "choice": choice, "methods": methods, "commands": commands}
