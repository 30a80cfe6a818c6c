"""From a folder of runs to a page: one figure for each problem that methods were run on."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bilax.errors import Doubts
from bilax.experiments.metrics import METRICS
from bilax.experiments.styles import Styles
from bilax.report import Figure, Method
from bilax.report.optional_imports import required
from bilax.storage.runs import FINISHED, MANIFEST, ROWS, in_words, manifests, read_rows

if TYPE_CHECKING:
    import pandas

LABELS = {name: metric.label for name, metric in METRICS.items()}
MAIN = tuple(name for name, metric in METRICS.items() if metric.main)


KINDS = ("published", "searched")


class StoredRun(NamedTuple):
    folder: Path
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        """Whose settings it has, where a page shows them apart."""
        return next((kind for kind in KINDS if kind == self.facts.get("variant")), "own")

    @property
    def started(self) -> bool:
        """Whether it has measured something."""
        return (self.folder / ROWS).is_file()


def stored_runs(folder: str | Path) -> list[StoredRun]:
    """Return the runs below a folder."""
    if Path(folder).is_file():
        raise ValueError(f"{folder} is a file, not a folder; give what `bilax run` or `bilax reproduce` wrote.")
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `bilax run` and `bilax reproduce` make one.")
    runs = [StoredRun(path, facts) for path, facts in manifests(folder).items() if _makes_sense(path, facts)]
    if not any(run.started for run in runs):
        raise ValueError(f"{folder} holds no runs; `bilax run` and `bilax reproduce` write them.")
    return runs


NEEDED: dict[str, tuple[type, ...]] = {
    "task": (str,),
    "title": (str,),
    "method": (str,),
    "setting": (str,),
    "sampler": (str,),
    "status": (str,),
    "started": (str,),
    "seed": (int,),
    "steps": (int, type(None)),
    "budget": (int, float, type(None)),
    "commit": (str, type(None)),
    "versions": (dict,),
    "machine": (dict,),
}


def _makes_sense(folder: Path, facts: dict[str, Any]) -> bool:
    """Tell whether a run can be shown; if not, say which facts its manifest lacks."""
    lacks = [name for name, kinds in NEEDED.items() if not isinstance(facts.get(name, ...), kinds)]
    picture = facts.get("picture", {})
    kinds = {"x": str, "y": str, "log_x": bool, "log_y": bool}
    if not isinstance(picture, dict) or not all(isinstance(picture[name], kinds.get(name, ())) for name in picture):
        lacks.append("picture")
    if not isinstance(facts.get("warnings", []), list):
        lacks.append("warnings")
    if lacks:
        Doubts().add(
            f"{folder / MANIFEST} lacks {', '.join(lacks)}, or has something else there; this run is left out."
        )
    return not lacks


class Plate(NamedTuple):
    """A figure that runs make, and which experiment it is (None for runs of one's own)."""

    figure: Figure
    experiment: str | None
    variant: str
    runs: list[StoredRun]


def own_plates(runs: list[StoredRun], styles: Styles) -> list[Plate]:
    """Return the plates of runs that belong to no figure of a paper, one per problem and kind of settings."""
    plates = []
    for task, kind in dict.fromkeys((run.facts["task"], run.kind) for run in runs):
        these = [run for run in runs if (run.facts["task"], run.kind) == (task, kind)]
        own = kind == "own"
        found: dict[str, list[StoredRun]] = {}
        for run in these:
            found.setdefault(_label(run, these), []).append(run)
        # A curve goes as far as all its runs do, so that one that has just begun would cut the others short.
        found = {
            label: [run for run in some if run.facts["status"] in FINISHED] or some for label, some in found.items()
        }
        figure = Figure(
            name="runs-" + task.replace(".", "_") + ("" if own else f"-{kind}"),
            title=these[0].facts["title"] + ("" if own else f", {kind} steps"),
            caption="",
            table=measurements(found),
            methods=tuple(method(label, some, styles) for label, some in found.items()),
            **these[0].facts.get("picture", {}),
            labels=LABELS,
            main=MAIN,
        )
        plates.append(Plate(figure, None, kind, [run for some in found.values() for run in some]))
    return plates


def _label(run: StoredRun, others: list[StoredRun]) -> str:
    """Return the shortest name that tells a run's curve from the others: its method, its setting, or all about it."""
    namesakes = [other for other in others if other.facts["method"] == run.facts["method"]]
    kinds = {tuple(other.facts[name] for name in ("setting", "sampler", "steps", "budget")) for other in namesakes}
    if len(kinds) == 1:
        return run.facts["method"]
    facts = run.facts
    if len({kind[0] for kind in kinds}) == len(kinds):
        return facts["setting"]
    steps = f", {facts['budget']:g} s" if facts["budget"] else f", {facts['steps']} steps"
    return f"{facts['setting']}, {facts['sampler']}{steps}"


def measurements(found: dict[str, list[StoredRun]]) -> "pandas.DataFrame":
    pandas: Any = required("pandas")
    rows = [
        {"method": name, "seed": run.facts["seed"], "status": in_words(run.facts["status"]), **row}
        for name, runs in found.items()
        for run in runs
        for row in read_rows(run.folder)
    ]
    return pandas.DataFrame(rows, columns=None if rows else ["method", "seed", "status", "k", "seconds"])


def method(name: str, runs: list[StoredRun], styles: Styles) -> Method:
    notes = []
    ends = Counter(run.facts["status"] for run in runs)
    notes += [
        f"{count} of {len(runs)} runs {status}"
        for status, count in ends.items()
        if status not in ("done", "converged", "timeout", "stopped")
    ]
    if any(run.facts.get("warnings") for run in runs):
        notes.append(next(run.facts["warnings"][0] for run in runs if run.facts.get("warnings")))
    first = runs[0].facts
    sampler = "" if first["sampler"] == "iid" else f", sampler {first['sampler']}"
    style = styles.of(str(first.get("algorithm", first["method"])), name)
    return Method(name, first["setting"] + sampler, first["command"], "; ".join(notes), style)


def facts(runs: list[StoredRun]) -> list[tuple[str, str]]:
    """Return how the runs were made: versions, machine, commits."""
    last = max(runs, key=lambda run: run.facts["started"]).facts
    first = min(run.facts["started"] for run in runs)
    statuses = Counter(in_words(run.facts["status"]) for run in runs)
    return [
        ("runs", ", ".join(f"{count} {status}" for status, count in statuses.items())),
        ("begun", f"{first} to {last['started']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in last["versions"].items())),
        ("machine", ", ".join(str(value) for value in last["machine"].values())),
        ("commits", ", ".join(sorted({str(run.facts["commit"] or "unknown") for run in runs}))),
    ]
