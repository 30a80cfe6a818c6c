"""What the registry says about every algorithm, as plain data and as the table of docs/methods.md."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax.algorithms import ALGORITHMS
from bilax.oracle import KINDS, traced
from bilax.problem import Problem


def catalogue() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "class": algorithm.__name__,
            "summary": (inspect.getdoc(algorithm) or "").splitlines()[0],
            "loops": algorithm.about.loops,
            "variance-reduced": algorithm.about.reduces,
            "calls": {column: readable(algorithm.about.calls[column]) for column in algorithm.about.calls},
            "needs": needs(algorithm),
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


def needs(algorithm: Any) -> dict[str, str]:
    """Return what a method asks of a problem and of a machine, with its defaults.

    >>> needs(ALGORITHMS["mrbo"])
    {'second derivatives': 'yes', 'keeps': '3 x, 3 y', 'full passes': ''}
    """
    calls, setting = algorithm.about.calls, algorithm()
    at_first = "at the start" if hasattr(setting, "init_cost") else ""
    return {
        "second derivatives": "yes" if {"JV", "HV"} & calls.keys() else "no",
        "keeps": _keeps(setting),
        "full passes": "again and again" if getattr(setting, "passes", float)() else at_first,
    }


def _keeps(setting: Any) -> str:
    """Return the arrays that a method carries from step to step, read from its state at a problem without a loss."""
    x, y, S = 10_007, 101, 64
    inner, outer = 3, 5  # blocks
    problem = Problem(
        lambda x, y, batch: y.sum() + x.sum(),
        lambda x, y, batch: (y**2).sum() * x.sum(),
        outer_data=np.zeros((S * outer, 1), np.float32),
        inner_data=np.zeros((S * inner, 1), np.float32),
    )
    oracle = traced(problem, "iid").oracle()
    point = (jax.ShapeDtypeStruct((size,), np.float32) for size in (x, y))
    state = jax.eval_shape(lambda x0, y0: setting.init(oracle, x0, y0), *point)
    names = {x: "x", y: "y", x * y: "x y", y * y: "y y"}
    names |= {x * inner: "x n/S", y * inner: "y n/S", x * outer: "x m/S", y * outer: "y m/S"}
    found = [names[leaf.size] for leaf in jax.tree.leaves(state) if leaf.size in names]
    counted = {name: found.count(name) for name in names.values() if name in found}
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counted.items())


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
        "| name | class | loops | variance-reduced | F | G | JV | HV | HINV | second derivatives | keeps | full passes "
        "| proven | reference |",
        "|" + " --- |" * 14,
    ]
    for entry in catalogue():
        calls = [entry["calls"].get(column, "") for column in KINDS]
        cells = [f"`{entry['name']}`", f"`{entry['class']}`", entry["loops"], entry["variance-reduced"], *calls]
        cells += entry["needs"].values()
        lines.append("| " + " | ".join([*cells, entry["complexity"], entry["reference"]]) + " |")
    return "\n".join(lines)
