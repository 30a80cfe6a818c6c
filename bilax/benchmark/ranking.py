"""How the benchmark's runs ended, and the ranking that they support."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilax.benchmark.methods import TASKS
from bilax.experiments.pages import stored_runs
from bilax.storage.runs import read_rows

BAND = (20, 80)  # per cent
METRICS = ("gap", "grad_norm2", "val_error", "test_error", "seconds", "k", "samples", "F", "G", "JV", "HV")

Ending = dict[str, Any]  # of a run: whose it is, and its last measurement


def endings(folder: Path) -> list[Ending]:
    """Return how the runs in a folder ended, in the order of problems, then of methods and seeds."""
    names = [task.name for task in TASKS]
    found = []
    for run in stored_runs(folder):
        facts, rows = run.facts, read_rows(run.folder)
        if facts["task"] in names and run.kind != "own" and rows:
            said = {name: facts[name] for name in ("task", "title", "budget", "method", "seed", "setting", "status")}
            last = {name: rows[-1][name] for name in METRICS if name in rows[-1]}
            commit = (facts.get("commit") or "")[:7]
            found.append(said | {"steps": run.kind, "commit": commit} | last)
    return sorted(
        found, key=lambda end: (names.index(end["task"]), end["steps"] != "searched", end["method"], end["seed"])
    )


class Place(NamedTuple):
    """How a method ended on a problem: the median over seeds, its band, and the places that the bands leave open."""

    method: str
    median: float
    low: float
    high: float
    first: int  # place, at best
    last: int  # and at worst
    seeds: int


def ranking(ends: Sequence[Ending], metric: str = "gap") -> list[Place]:
    """Return the methods, best median first. One is before another for certain only where their bands part."""
    values: dict[str, list[float]] = {}
    for end in ends:
        value = end.get(metric) if end["status"] not in ("diverged", "failed") else None
        values.setdefault(end["method"], []).append(np.inf if value is None else float(value))
    bands = {}
    for method, some in values.items():
        low, middle, high = np.percentile(some, (BAND[0], 50, BAND[1]), method="nearest")
        bands[method] = (float(middle), float(low), float(high), len(some))
    places = []
    for method, (middle, low, high, seeds) in sorted(bands.items(), key=lambda item: item[1][0]):
        others = [band for name, band in bands.items() if name != method]
        before = sum(other[2] < low for other in others)
        behind = sum(other[1] > high for other in others)
        places.append(Place(method, middle, low, high, 1 + before, len(bands) - behind, seeds))
    return places


def markdown(title: str, places: Sequence[Place]) -> str:
    """Return a ranking as a table."""
    lines = [f"**{title}**", "", "| place | method | Phi - Phi* (median) | 20 to 80 % | seeds |", "| --- " * 5 + "|"]
    for place in places:
        middle = "diverged, or not measured" if np.isinf(place.median) else f"{place.median:.3g}"
        band = "" if np.isinf(place.median) else f"{place.low:.3g} to {place.high:.3g}"
        lines.append(f"| {_where(place)} | {place.method} | {middle} | {band} | {place.seeds} |")
    return "\n".join(lines)


def told(ends: Sequence[Ending]) -> str:
    """Return all rankings as Markdown."""
    kinds = dict.fromkeys((end["task"], end["steps"]) for end in ends)
    parts = []
    for kind in kinds:
        some = [end for end in ends if (end["task"], end["steps"]) == kind]
        commits = ", ".join(dict.fromkeys(end["commit"] for end in some))
        title = f"{some[0]['title']}, {kind[1]} steps, {some[0]['budget']:g} s (commit {commits})"
        parts.append(markdown(title, ranking(some)))
    return "\n\n".join(parts) + "\n"


def in_short(ends: Sequence[Ending], also: Sequence[str], best: int = 5) -> str:
    """Return who ends lowest on every problem with searched steps, and where some others end, as a table."""
    said = [end for end in ends if end["steps"] == "searched"]
    lines = [f"| problem | lowest after the budget | {' | '.join(also)} |", "| --- " * (2 + len(also)) + "|"]
    for task in dict.fromkeys(end["task"] for end in said):
        places = ranking([end for end in said if end["task"] == task])
        title = next(end["title"] for end in said if end["task"] == task)
        first = ", ".join(f"{place.method} ({_where(place)})" for place in places[:best])
        others = (f"{_where(place)} of {len(places)}" for name in also for place in places if place.method == name)
        lines.append(f"| {title} | {first} | {' | '.join(others)} |")
    return "\n".join(lines)


def _where(place: Place) -> str:
    return f"{place.first}" if place.first == place.last else f"{place.first} to {place.last}"


def as_lines(ends: Sequence[Ending]) -> str:
    """Return the endings as JSON, a line each."""
    return "".join(json.dumps(end) + "\n" for end in ends)
