"""The page of a folder of runs, with the paper's figures among them and what they say about its claims."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bilax import settings
from bilax.experiments.answers import answer
from bilax.experiments.cleaning import galleries
from bilax.experiments.jobs import FOREVER
from bilax.experiments.pages import LABELS, MAIN, Plate, StoredRun, facts, measurements, method, own_plates, stored_runs
from bilax.experiments.styles import Styles
from bilax.paper.claims import CLAIMS, ENOUGH_SEEDS, Curves, together
from bilax.paper.figures import EXPERIMENTS, GUESTS, VARIANTS, Experiment, sampler_of
from bilax.report import Figure, Page, Verdict
from bilax.storage.runs import FINISHED


def page(folder: str | Path) -> Page:
    """Return the page of all runs below a folder."""
    runs = stored_runs(folder)
    styles = Styles()
    started = [run for run in runs if run.started]
    ended = [run for run in runs if run.facts["status"] in (*FINISHED, "failed")]
    plates = [
        plate for variant in VARIANTS for name in EXPERIMENTS for plate in _of_paper(name, variant, ended, styles)
    ]
    used = {run.folder for plate in plates for run in plate.runs}
    plates += own_plates([run for run in started if run.folder not in used], styles)
    figures, verdicts = tuple(plate.figure for plate in plates), tuple(_verdicts(plates))
    said = [part for part in (answer(figures), claims_in_words(verdicts)) if part]
    return Page(
        title=_title(started),
        introduction=_introduction(plates, started),
        figures=figures,
        verdicts=verdicts,
        galleries=tuple(galleries(plates)),
        facts=tuple(facts(started)),
        answer="; ".join(said) + "." if said else "",
        about=_about(plates),
    )


def _of_paper(name: str, variant: str, runs: list[StoredRun], styles: Styles) -> list[Plate]:
    """Return an experiment's plates, one per data set that all of its methods were run on with the same budget."""
    experiment = EXPERIMENTS[name]
    wanted = {}
    for name in (*experiment.methods, *experiment.guests(variant)):
        algorithm = experiment.family.algorithm(name, variant)
        wanted[name] = (settings.name_of(algorithm), settings.parameters(algorithm), sampler_of(name))
    plates = []
    for task in dict.fromkeys(run.facts["task"] for run in runs if _belongs(run.facts["task"], experiment)):
        timed = [run for run in runs if run.facts["task"] == task and run.facts["budget"] is not None]
        for budget in sorted({run.facts["budget"] for run in timed}, reverse=True):
            found = {name: [run for run in timed if _has(run, budget, *setting)] for name, setting in wanted.items()}
            if all(found[name] for name in experiment.methods):
                found = {name: runs for name, runs in found.items() if runs}
                plates.append(_plate(experiment, variant, task, budget, found, styles))
                break
    return plates


def _has(run: StoredRun, budget: float, algorithm: str, parameters: dict[str, Any], sampler: str) -> bool:
    wanted = {"budget": budget, "steps": FOREVER, "sampler": sampler, "algorithm": algorithm, "parameters": parameters}
    return all(run.facts.get(name) == value for name, value in wanted.items())


def _belongs(task: str, experiment: Experiment) -> bool:
    """The experiment's own data, or the digits in place of them."""
    return task in (experiment.task.name, stand_in(experiment).name)


def stand_in(experiment: Experiment) -> Any:
    """Return the task that takes the place of an experiment's data, offline."""
    data = "digits" if experiment.task.cleans else "digits-penalties"
    return replace(experiment.task, data=data)


def _plate(
    experiment: Experiment, variant: str, task: str, budget: float, found: dict[str, list[StoredRun]], styles: Styles
) -> Plate:
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
        table=measurements(found),
        methods=tuple(method(name, runs, styles) for name, runs in found.items()),
        x=experiment.x,
        y=experiment.y,
        log_x=experiment.task.cleans,  # a step takes from 0.2 ms (SUSTAIN) to 30 s (STABLE)
        log_y=experiment.y == "train_loss",
        labels=LABELS,
        main=MAIN,
        short=f"{experiment.title.partition(':')[0]}, {variant}",
    )
    return Plate(figure, experiment.name, variant, [run for runs in found.values() for run in runs])


def _verdicts(plates: list[Plate]) -> list[Verdict]:
    verdicts = []
    for claim in CLAIMS:
        for plate in plates:
            if plate.experiment in claim.where:
                table = plate.figure.table
                judged = claim.test(Curves(table.loc[~table["method"].isin(GUESTS), :], plate.figure.y))
                where = plate.figure.title.removesuffix(f", {plate.variant}")
                variant = plate.variant + (", on digits" if plate.figure.name.endswith("-digits") else "")
                short = re.match(r"Figure [^,:]*", where)
                verdicts.append(
                    Verdict(claim.text, where, variant, judged.outcome, judged.numbers, short[0] if short else "")
                )
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


def claims_in_words(verdicts: Sequence[Verdict]) -> str:
    """Say how many claims hold, every figure of a claim together.

    >>> claims_in_words([Verdict("a", "1", "paper", "holds", ""), Verdict("b", "1", "paper", "fails", "")])
    'of 2 claims of the paper 1 holds, 1 fails (paper)'
    """
    if not verdicts:
        return ""
    claims = dict.fromkeys(verdict.claim for verdict in verdicts)
    if all(verdict.verdict == "undecided" for verdict in verdicts):
        return f"none of {len(claims)} claims of the paper is decided, which takes {ENOUGH_SEEDS} seeds or more"
    said = []
    for variant in dict.fromkeys(verdict.variant for verdict in verdicts):
        found = [[v.verdict for v in verdicts if (v.claim, v.variant) == (claim, variant)] for claim in claims]
        counts = Counter(together(some) for some in found if some)
        words = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
        parts = [f"{counts[one]} {one if counts[one] == 1 else words[one]}" for one in words if counts[one]]
        said.append(f"{', '.join(parts)} ({variant})")
    return f"of {len(claims)} {'claim' if len(claims) == 1 else 'claims'} of the paper {'; '.join(said)}"


def _title(runs: list[StoredRun]) -> str:
    methods = list(dict.fromkeys(str(run.facts.get("algorithm", run.facts["method"])) for run in runs))
    problems = list(dict.fromkeys(run.facts["title"] for run in runs))
    what = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    return f"{what} on {problems[0] if len(problems) == 1 else f'{len(problems)} problems'}"


def _introduction(plates: list[Plate], runs: list[StoredRun]) -> str:
    seeds = len({run.facts["seed"] for run in runs})
    budgets = sorted({run.facts["budget"] for run in runs if run.facts["budget"]})
    each = f", {' or '.join(f'{budget:g}' for budget in budgets)} s each" if 0 < len(budgets) < 3 else ""
    text = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}{each}."
    if any(plate.experiment for plate in plates):
        text += " Figures of “Provably Faster Algorithms for Bilevel Optimization” (NeurIPS 2021), run again."
    return text


def _about(plates: list[Plate]) -> str:
    text = "Seconds are spent in the algorithm alone: compilation and measuring are not counted."
    if any(plate.experiment for plate in plates):
        text += (
            "\n\nThe experiments are those of “Provably Faster Algorithms for Bilevel Optimization” (Yang, Ji and "
            "Liang, NeurIPS 2021), run with the algorithms as published. In the variant “paper” every setting that the "
            "paper states is its own; in the variant “tuned” the step eta of the Neumann series is kept below 1/L and "
            "the steps were searched, with the same effort for every method but STABLE, which keeps the paper's."
        )
    return text
