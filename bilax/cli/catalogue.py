"""What the registry says about every algorithm, as plain data and as the table of docs/methods.md."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from bilax.algorithms import ALGORITHMS
from bilax.oracle import KINDS


def catalogue() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "class": algorithm.__name__,
            "summary": (inspect.getdoc(algorithm) or "").splitlines()[0],
            "loops": algorithm.about.loops,
            "variance-reduced": algorithm.about.reduces,
            "calls": {column: readable(algorithm.about.calls[column]) for column in algorithm.about.calls},
            "complexity": algorithm.about.complexity,
            "reference": algorithm.about.reference,
            "parameters": [
                {
                    "name": field.name,
                    "default": field.default,
                    "meaning": field.metadata["doc"],
                    "allowed": field.metadata["allowed"],
                }
                for field in dataclasses.fields(algorithm)
            ],
        }
        for name, algorithm in ALGORITHMS.items()
    ]


def readable(formula: str) -> str:
    """Return a formula without the signs of multiplication.

    >>> readable("Q * (S1 / q + 2 * (m + 2) * S2)")
    'Q (S1/q + 2 (m + 2) S2)'
    """
    return formula.replace(" * ", " ").replace(" / ", "/")


BEGIN, END = "<!-- made by `make docs` from the code -->\n", "\n<!-- end -->"


def write(page: Path) -> None:
    """Put the table into a page, between its two marks."""
    text = page.read_text("utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:before] + markdown() + text[after:], "utf-8")


def markdown() -> str:
    """Return the table of docs/methods.md."""
    lines = [
        "| name | class | loops | variance-reduced | F | G | JV | HV | HINV | proven | reference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in catalogue():
        calls = [entry["calls"].get(column, "") for column in KINDS]
        cells = [f"`{entry['name']}`", f"`{entry['class']}`", entry["loops"], entry["variance-reduced"], *calls]
        lines.append("| " + " | ".join([*cells, entry["complexity"], entry["reference"]]) + " |")
    return "\n".join(lines)
