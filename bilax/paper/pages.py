"""From a folder of runs to a page: which figures they make, what they say about the claims, which images stand out."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilax import settings
from bilax.experiments.claims import CLAIMS, Curves, together
from bilax.experiments.execute import FOREVER, sampler_of
from bilax.experiments.specs import EXPERIMENTS, VARIANTS, Experiment
from bilax.report import Figure, Gallery, Method, Page, Specimen, Verdict
from bilax.report.needs import needs
from bilax.results import ARRAYS, FINISHED, ROWS, manifests, read_rows

if TYPE_CHECKING:
    import pandas

SHOWN = 20  # images per gallery


class Run(NamedTuple):
    folder: Path
    facts: dict[str, Any]


class Plate(NamedTuple):
    """A figure that the runs make, and which figure of the paper it is (None for runs of one's own)."""

    figure: Figure
    experiment: str | None
    variant: str
    runs: list[Run]


def page(folder: str | Path) -> Page:
    """Return the page of all runs below a folder."""
    runs = [Run(path, facts) for path, facts in manifests(_checked(folder)).items()]
    started = [run for run in runs if (run.folder / ROWS).is_file()]
    if not started:
        raise ValueError(f"{folder} holds no runs; `bilax run` and `bilax reproduce` write them.")
    ended = [run for run in runs if run.facts["status"] in (*FINISHED, "failed")]
    plates = [plate for variant in VARIANTS for name in EXPERIMENTS for plate in _of_paper(name, variant, ended)]
    used = {run.folder for plate in plates for run in plate.runs}
    plates += _own([run for run in started if run.folder not in used])
    return Page(
        title="bilax: results",
        introduction=_introduction(plates, started),
        figures=tuple(plate.figure for plate in plates),
        verdicts=tuple(_verdicts(plates)),
        galleries=tuple(_galleries(plates)),
        facts=tuple(_facts(started)),
    )


def _checked(folder: str | Path) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `bilax run` and `bilax reproduce` make one.")
    return Path(folder)


def _of_paper(name: str, variant: str, runs: list[Run]) -> list[Plate]:
    """Return an experiment's plates, one per data set that all of its methods were run on with the same budget."""
    experiment = EXPERIMENTS[name]
    wanted = {}
    for method in experiment.methods:
        setting = settings.write(settings.parse(experiment.family.setting(method, variant)))
        wanted[method] = (setting, sampler_of(method))
    plates = []
    for task in dict.fromkeys(run.facts["task"] for run in runs if _belongs(run.facts["task"], experiment)):
        timed = [run for run in runs if run.facts["task"] == task and run.facts["budget"] is not None]
        for budget in sorted({run.facts["budget"] for run in timed}, reverse=True):
            found = {
                method: [run for run in timed if _has(run, budget, *setting)] for method, setting in wanted.items()
            }
            if all(found.values()):
                plates.append(_plate(experiment, variant, task, budget, found))
                break
    return plates


def _has(run: Run, budget: float, setting: str, sampler: str) -> bool:
    facts = run.facts
    return (facts["budget"], facts["setting"], facts["sampler"], facts["steps"]) == (budget, setting, sampler, FOREVER)


def _belongs(task: str, experiment: Experiment) -> bool:
    """The experiment's own data, or the digits in place of them."""
    return task in (experiment.task.name, stand_in(experiment).name)


def stand_in(experiment: Experiment) -> Any:
    """Return the task that takes the place of an experiment's data, offline."""
    data = "digits" if experiment.task.cleans else "digits-penalties"
    return replace(experiment.task, data=data)


def _plate(experiment: Experiment, variant: str, task: str, budget: float, found: dict[str, list[Run]]) -> Plate:
    own = task == experiment.task.name
    title = experiment.title if own else f"{experiment.title} (here: {next(iter(found.values()))[0].facts['title']})"
    words = {
        "paper": "Settings of the paper, and ours where it is silent",
        "tuned": "eta below 1/L, step sizes found by search (STABLE: the paper's)",
    }[variant]
    figure = Figure(
        name=f"{experiment.name}-{variant}" + ("" if own else "-digits"),
        title=f"{title}, {variant}",
        caption=f"{words}; {budget:g} s per run, in the algorithm alone.",
        table=_table(found),
        methods=tuple(_method(name, runs) for name, runs in found.items()),
        x=experiment.x,
        y=experiment.y,
        log_x=experiment.task.cleans,  # a step takes from 0.2 ms (SUSTAIN) to 30 s (STABLE)
        log_y=experiment.y == "train_loss",
    )
    return Plate(figure, experiment.name, variant, [run for runs in found.values() for run in runs])


def _own(runs: list[Run]) -> list[Plate]:
    """Return the plates of runs that belong to no figure of the paper, one per problem."""
    plates = []
    for task in dict.fromkeys(run.facts["task"] for run in runs):
        these = [run for run in runs if run.facts["task"] == task]
        found: dict[str, list[Run]] = {}
        for run in these:
            found.setdefault(_label(run, these), []).append(run)
        y = "train_loss" if (these[0].folder / ARRAYS).is_file() else "test_loss"
        figure = Figure(
            name="runs-" + task.replace(".", "_"),
            title=these[0].facts["title"],
            caption="",
            table=_table(found),
            methods=tuple(_method(label, some) for label, some in found.items()),
            y=y,
            log_y=y == "train_loss",
        )
        plates.append(Plate(figure, None, "own", [run for some in found.values() for run in some]))
    return plates


def _label(run: Run, others: list[Run]) -> str:
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


def _table(found: dict[str, list[Run]]) -> "pandas.DataFrame":
    pandas: Any = needs("pandas")
    rows = [
        {"method": method, "seed": run.facts["seed"], "status": run.facts["status"], **row}
        for method, runs in found.items()
        for run in runs
        for row in read_rows(run.folder)
    ]
    return pandas.DataFrame(rows, columns=None if rows else ["method", "seed", "status", "k", "seconds"])


def _method(name: str, runs: list[Run]) -> Method:
    notes = []
    ends = Counter(run.facts["status"] for run in runs)
    notes += [
        f"{count} of {len(runs)} runs {status}" for status, count in ends.items() if status not in ("done", "timeout")
    ]
    if any(run.facts.get("warnings") for run in runs):
        notes.append(next(run.facts["warnings"][0] for run in runs if run.facts.get("warnings")))
    first = runs[0].facts
    sampler = "" if first["sampler"] == "iid" else f", sampler {first['sampler']}"
    return Method(name, first["setting"] + sampler, first["command"], "; ".join(notes))


def _verdicts(plates: list[Plate]) -> list[Verdict]:
    verdicts = []
    for claim in CLAIMS:
        for plate in plates:
            if plate.experiment in claim.where:
                judged = claim.test(Curves(plate.figure.table, plate.figure.y))
                where = plate.figure.title.removesuffix(f", {plate.variant}")
                variant = plate.variant + (", on digits" if plate.figure.name.endswith("-digits") else "")
                verdicts.append(Verdict(claim.text, where, variant, judged.outcome, judged.numbers))
    return verdicts


def summary(page: Page) -> list[tuple[str, dict[str, str]]]:
    """Return every claim with its verdict per variant, all of its figures together."""
    rows = []
    for claim in dict.fromkeys(verdict.claim for verdict in page.verdicts):
        mine = [verdict for verdict in page.verdicts if verdict.claim == claim]
        variants = dict.fromkeys(verdict.variant for verdict in mine)
        rows.append((claim, {v: _joined([one.verdict for one in mine if one.variant == v]) for v in variants}))
    return rows


def markdown(page: Page) -> str:
    """Return the verdicts in short, and the evidence for each, as Markdown."""
    rows = summary(page)
    variants = list(dict.fromkeys(variant for _, verdicts in rows for variant in verdicts))
    lines = [f"| claim of the paper | {' | '.join(variants)} |", "| --- |" + " --- |" * len(variants)]
    lines += [f"| {claim} | {' | '.join(verdicts.get(v, '') for v in variants)} |" for claim, verdicts in rows]
    lines += [
        "",
        "| claim | where | variant | verdict | numbers (medians over seeds) |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {v.claim} | {v.where} | {v.variant} | {v.verdict} | {v.numbers} |" for v in page.verdicts]
    return "\n".join(lines) + "\n"


def _joined(verdicts: list[Any]) -> str:
    return verdicts[0] if len(set(verdicts)) == 1 else f"{together(verdicts)} ({', '.join(verdicts)})"


def _galleries(plates: list[Plate]) -> list[Gallery]:
    """Return, for every problem and variant with labels to clean, the images of the run that tells them best."""
    best: dict[tuple[str, str], tuple[float, str, Run]] = {}
    for plate in plates:
        for run in plate.runs:
            rows = read_rows(run.folder)
            auroc = rows[-1].get("auroc") if rows else None
            if auroc is not None and (run.folder / ARRAYS).is_file():
                key = (run.facts["title"], plate.variant)
                if key not in best or auroc > best[key][0]:
                    best[key] = (auroc, run.facts["method"], run)
    return [_gallery(title, variant, *found) for (title, variant), found in best.items()]


def _gallery(title: str, variant: str, auroc: float, method: str, run: Run) -> Gallery:
    arrays = _arrays(run)
    chosen = arrays["least"][:SHOWN]
    specimens = tuple(
        Specimen(
            np.asarray(image, np.float32), str(arrays["given"][i]), str(arrays["true"][i]), float(arrays["weights"][i])
        )
        for i, image in zip(chosen, arrays["images"], strict=False)
    )
    wrong = int((arrays["given"][chosen] != arrays["true"][chosen]).sum())
    note = (
        f"{method}, seed {run.facts['seed']}: the run whose weights tell wrong from right labels best, AUROC "
        f"{auroc:.3f}. {wrong} of these {len(chosen)} labels are wrong."
    )
    return Gallery(f"Trusted least: {title}, {variant}", note, specimens)


def _arrays(run: Run) -> dict[str, np.ndarray]:
    with np.load(run.folder / ARRAYS) as file:
        return dict(file)


def _introduction(plates: list[Plate], runs: list[Run]) -> str:
    seeds = len({run.facts["seed"] for run in runs})
    text = f"{len(runs)} runs, {seeds} {'seed' if seeds == 1 else 'seeds'}."
    if any(plate.experiment for plate in plates):
        text += (
            " The experiments of “Provably Faster Algorithms for Bilevel Optimization” (Yang, Ji and Liang, NeurIPS "
            "2021), run with the algorithms as published. In the variant “paper” every setting that the paper states "
            "is its own; in the variant “tuned” the step eta of the Neumann series is kept below 1/L and the steps "
            "were searched, with the same effort for every method but STABLE, which keeps the paper's."
        )
    return text + "\n\nSeconds are spent in the algorithm alone: compilation and measuring are not counted."


def _facts(runs: list[Run]) -> list[tuple[str, str]]:
    last = max(runs, key=lambda run: run.facts["started"]).facts
    first = min(run.facts["started"] for run in runs)
    statuses = Counter(run.facts["status"] for run in runs)
    return [
        ("runs", ", ".join(f"{count} {status}" for status, count in statuses.items())),
        ("begun", f"{first} to {last['started']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in last["versions"].items())),
        ("machine", ", ".join(str(value) for value in last["machine"].values())),
        ("commits", ", ".join(sorted({str(run.facts["commit"] or "unknown") for run in runs}))),
    ]
