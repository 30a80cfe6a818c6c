"""The commands that compute: run, reproduce, tune, report."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bilax.cli import signals
from bilax.cli.shell import app, check_folder, check_writable, console
from bilax.errors import unknown
from bilax.storage.files import write_text

RESULTS = Path("bilax-results")

Problem = Annotated[
    str,
    typer.Option(help="digits, mnist, newsgroups, digits-penalties, ijcnn1, covtype, mnist-replaced or simulated."),
]
Noise = Annotated[
    float | None, typer.Option(help="Share of wrong labels, for digits, mnist and mnist-replaced.  \\[default: 0.3]")
]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Again = Annotated[bool, typer.Option("--again", help="Run also what is finished already.")]


@app.command(
    epilog='Examples: [bold]bilax run "mrbo\\[gamma=300,lam=1,S=100]"[/bold], '
    "[bold]bilax run vrbo --problem mnist --noise 0.1 --budget 10[/bold], [bold]bilax run my-setting.toml[/bold]"
)
def run(
    setting: Annotated[str, typer.Argument(help="A method, like mrbo or mrbo\\[gamma=300,S=100], or a TOML file.")],
    problem: Problem = "digits",
    noise: Noise = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Iterations.  \\[default: 1000, or as many as fit]")] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds in the algorithm, at most.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Decides the wrong labels, the start and the batches.")
    ] = 0,
    sampler: Annotated[str, typer.Option(help="iid, epoch, blocks (the fastest), block-epoch or full.")] = "iid",
    devices: Annotated[
        int,
        typer.Option(min=0, help="Devices that share the run, or parts of a CPU.  \\[default: no mesh]"),
    ] = 0,
    out: Out = RESULTS,
    again: Again = False,
) -> None:
    """Run one method on one problem; show and keep what is measured."""
    check_folder(out)
    from bilax import settings
    from bilax.errors import Doubts
    from bilax.experiments.jobs import FOREVER, Job, is_current, run_job
    from bilax.experiments.metrics import METRICS
    from bilax.numerics.processes import is_first, join
    from bilax.running.devices import mesh_of
    from bilax.sampling.samplers import resolve
    from bilax.storage.runs import in_words, is_finished, read_manifest, read_rows

    resolve(sampler)
    algorithm = settings.parse(setting)  # a mistake shows before the data are loaded
    _check_budget(budget)
    if steps is None:
        steps = 1000 if budget is None else FOREVER
    processes = join()
    if devices or processes > 1:
        devices = mesh_of(devices, processes).size  # before anything else asks JAX for its devices
    job = Job(_task(problem, noise), algorithm, seed, sampler, steps, budget, devices=devices)
    if processes > 1 and not is_first():
        return _follow(job, again)
    heads = {name: name for name in ("k", "seconds", "samples")}
    heads |= {name: metric.short for name, metric in METRICS.items() if metric.main}
    shown: list[str] = []

    def show(row: dict[str, Any]) -> None:
        if not shown:
            shown.extend(name for name in heads if name in row)
            console.print(" ".join(f"{heads[name]:>9}" for name in shown), style="bold", highlight=False)
        values = (math.nan if row[name] is None else row[name] for name in shown)
        console.print(" ".join(f"{value:>9.4g}" for value in values), highlight=False)

    console.print(f"{job.task.title}: {escape(job.setting)}", highlight=False, soft_wrap=True)
    if is_finished(out / job.folder) and not is_current(out / job.folder) and not again:
        console.print("there is a result of other versions of bilax or JAX; it is run anew.", highlight=False)
    folder = run_job(job, out, again=again, on_row=show)
    facts = read_manifest(folder, Doubts()) or {}
    rows = read_rows(folder)
    if not shown and rows:
        console.print("finished already (--again runs it anew); its last measurement:", highlight=False)
        show(rows[-1])
    for warning in facts.get("warnings", ()):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print(f"{in_words(facts['status'])}: {escape(facts['message'])}", highlight=False, soft_wrap=True)
    console.print(
        f"kept in {escape(str(folder))}; a page of it: [bold]bilax report {escape(shlex.quote(str(out)))}[/bold]",
        highlight=False,
        soft_wrap=True,
    )
    if facts["status"] == "interrupted":
        goes_on = f"{job.command} --out {shlex.quote(str(out))}{' --again' if again else ''}"
        console.print(f"to go on from here: [bold]{escape(goes_on)}[/bold]", highlight=False, soft_wrap=True)
        raise typer.Exit(signals.exit_status())
    if facts["status"] in ("failed", "diverged"):
        raise typer.Exit(1)


@app.command(
    epilog="Examples: [bold]bilax reproduce fig1a[/bold], [bold]bilax reproduce all --quick[/bold], "
    "[bold]bilax reproduce fig1a --data digits[/bold] (offline, small)"
)
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="fig1a ... fig7b, table1, all; tuning repeats the searches; benchmark, optima.")
    ],
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds per setting.  \\[default: 5; table1: up to 256]"),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds per run.  \\[default: 5; newsgroups: 10]")] = None,
    variant: Annotated[str, typer.Option(help="paper, tuned or both.")] = "both",
    data: Annotated[str, typer.Option(help="paper, or digits: the same methods on bundled data.")] = "paper",
    quick: Annotated[bool, typer.Option("--quick", help="One seed, one second per run.")] = False,
    only: Annotated[
        str, typer.Option(help="benchmark: problems or methods whose name holds this word; tuning: data.")
    ] = "",
    out: Out = RESULTS,
    again: Again = False,
) -> None:
    """Run an experiment of the paper, or all, and write a page with curves, tables and verdicts."""
    from bilax.experiments.jobs import run_all
    from bilax.paper import figures, pages
    from bilax.report import check_installed

    check_installed()  # before hours of running, not after
    if experiment in ("benchmark", "optima"):
        _check_budget(budget)
        check_folder(out)
        return _optima(out) if experiment == "optima" else _benchmark(out, seeds, budget, quick, only, again)
    names = [*figures.EXPERIMENTS, "table1"] if experiment == "all" else [experiment]
    for name in names:
        if name not in (*figures.EXPERIMENTS, "table1", "tuning"):
            raise unknown("experiment", name, [*figures.EXPERIMENTS, "table1", "tuning", "all", "benchmark", "optima"])
    if variant not in (*figures.VARIANTS, "both"):
        raise unknown("variant", variant, (*figures.VARIANTS, "both"))
    if data not in ("paper", "digits"):
        raise unknown("choice of --data", data, ("paper", "digits"))
    _check_budget(budget)
    check_folder(out)
    if names == ["tuning"]:
        return _tuning(out, quick, only)
    chosen = [figures.EXPERIMENTS[name] for name in names if name in figures.EXPERIMENTS]
    jobs = [
        job
        for one in chosen
        for which in (figures.VARIANTS if variant == "both" else (variant,))
        for job in figures.jobs(
            one,
            which,
            range(seeds or (1 if quick else figures.SEEDS)),
            budget or (1.0 if quick else one.family.budget),
            pages.stand_in(one) if data == "digits" else None,
        )
    ]
    ends = run_all(jobs, out, again=again, announce=lambda text: console.print(text, highlight=False))
    if "interrupted" not in ends and "table1" in names:
        _table1(out, seeds, quick)
    if chosen:
        _write_report(out)
    if "interrupted" in ends:
        console.print("interrupted; the same command goes on with what is left.", highlight=False)
        raise typer.Exit(signals.exit_status())
    if "failed" in ends:
        console.print("some runs failed; their manifests say why.", highlight=False)
        raise typer.Exit(1)


def _benchmark(out: Path, seeds: int | None, budget: float | None, quick: bool, only: str, again: bool) -> None:
    from bilax.benchmark import ranking, runs
    from bilax.benchmark.methods import PUBLISHED, TASKS, methods_for
    from bilax.experiments.jobs import run_all

    announce = lambda text: console.print(text, highlight=False)  # noqa: E731
    how_many = range(seeds or (1 if quick else runs.SEEDS))
    ends: set[str] = set()
    names = [f"{task.name} {method}".lower() for task in TASKS for method in methods_for(task)]
    if not any(only.lower() in name for name in names):
        known = ", ".join(task.name for task in TASKS)
        raise ValueError(
            f"no problem and no method of the benchmark has {only!r} in its name; the problems are {known}."
        )
    for task in TASKS:
        seconds = budget or (0.5 if quick else runs.BUDGET)
        wanted = [method for method in methods_for(task) if only.lower() in f"{task.name} {method}".lower()]
        published = {method: steps for method, steps in PUBLISHED[task.name].items() if method in wanted}
        jobs = runs.jobs(task, "published", published, how_many, seconds)
        ends |= run_all(list(jobs), out, again=again, announce=announce)
        for method in () if quick else wanted:  # each is searched and run before the next one
            if "interrupted" in ends:
                break
            steps = runs.searched(task, [method], out / ".benchmark", announce=announce)
            jobs = runs.jobs(task, "searched", steps, how_many, seconds)
            ends |= run_all(list(jobs), out, again=again, announce=announce)
        if "interrupted" in ends:
            break
    found = ranking.endings(out)
    write_text(out / "benchmark.md", ranking.told(found))
    write_text(out / "benchmark.jsonl", ranking.as_lines(found))
    console.print(f"written: {escape(str(out / 'benchmark.md'))}", highlight=False)
    _write_report(out)
    if "interrupted" in ends:
        console.print("interrupted; the same command goes on with what is left.", highlight=False)
        raise typer.Exit(signals.exit_status())


def _follow(job: Any, again: bool) -> None:
    """Take part in a run that another process shows and keeps."""
    from tempfile import TemporaryDirectory

    from bilax.experiments.jobs import run_job

    with TemporaryDirectory() as nowhere:
        run_job(job, Path(nowhere), again=again, on_row=lambda row: None)


def _optima(out: Path) -> None:
    from bilax.benchmark import optima

    out.mkdir(parents=True, exist_ok=True)
    optima.find_all(out / "optima.json", announce=lambda text: console.print(text, highlight=False))
    console.print(f"written: {escape(str(out / 'optima.json'))}", highlight=False)


def _tuning(out: Path, quick: bool, only: str) -> None:
    from bilax.paper import searches
    from bilax.paper.figures import SEARCHED

    families = tuple(family for family in SEARCHED if only.lower() in family.search)
    if not families:
        raise unknown("family of figures", only, [family.search for family in SEARCHED])
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tuned.toml"
    announce = lambda text: console.print(text, highlight=False)  # noqa: E731
    searches.search_all(path, scale=0.02 if quick else 1.0, families=families, announce=announce)
    console.print(f"written: {escape(str(path))}", highlight=False)


def _table1(out: Path, seeds: int | None, quick: bool) -> None:
    import jax

    from bilax.paper import table1
    from bilax.storage.environment import commit

    out.mkdir(parents=True, exist_ok=True)
    with jax.enable_x64(True):
        rows = table1.measure(
            seeds=max(2, seeds or (2 if quick else table1.SEEDS[1])),
            scale=0.01 if quick else 1.0,
            announce=console.print,
            keep=out / ".table1",
        )
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for title in ("method", "most calls", "slope", "95 % interval", "proven", "verdict"):
        table.add_column(title)
    for row in rows:
        kind = row.main_kind()
        low, high = row.interval[kind]
        proven = "" if row.proven is None else f"{row.proven:g}"
        table.add_row(row.method, kind, f"{row.slope[kind]:.2f}", f"{low:.2f} to {high:.2f}", proven, row.verdict())
    console.print(table)
    console.print(
        f"slope: of log calls against log 1/eps, for mean |grad Phi|^2 <= eps, eps from {max(table1.TARGETS):g} to "
        f"{min(table1.TARGETS):g}",
        highlight=False,
    )
    write_text(out / "table1.md", table1.markdown(rows) + "\n")
    write_text(out / "table1.json", table1.written(rows, commit()) + "\n")
    console.print(f"written: {escape(str(out / 'table1.md'))}", highlight=False)


@app.command(
    epilog="Examples: [bold]bilax tune mrbo --grid gamma=10,100,1000 --grid lam=0.1,0.3,1 --steps 500[/bold], "
    "[bold]bilax tune soba --problem my_problem.py:problem[/bold]"
)
def tune(
    setting: Annotated[str, typer.Argument(help="A method, like mrbo or mrbo\\[Q=5,S=100], or a TOML file.")],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="name=value,value,...; may be given several times.  \\[default: steps of both levels]"),
    ] = None,
    problem: Annotated[
        str,
        typer.Option(help="As in bilax run; or FILE.py:NAME, a bilax.Problem or a function that makes one."),
    ] = "digits",
    noise: Noise = None,
    steps: Annotated[int, typer.Option(min=1, help="Iterations of the settings that come to the end.")] = 1000,
    rungs: Annotated[int, typer.Option(min=1, help="Rounds; each keeps the best quarter.")] = 2,
    metric: Annotated[
        str | None,
        typer.Option(help="What to search by.  \\[default: val_loss; of your own problem, the outer loss]"),
    ] = None,
    maximise: Annotated[bool, typer.Option("--maximise", help="Larger is better, as of accuracy and AUROC.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Decides the wrong labels, the start and the batches.")
    ] = 0,
    sampler: Annotated[str, typer.Option(help="iid, epoch, blocks (the fastest), block-epoch or full.")] = "iid",
    out: Annotated[Path | None, typer.Option(help="Write the winner to this TOML file.")] = None,
) -> None:
    """Search a grid of hyper-parameters as one compiled program, the promising ones further than the others."""
    if out is not None:
        check_writable(out)
        if out.suffix != ".toml":
            raise ValueError(f"cannot write {out}: give a name that ends in .toml, which bilax run takes.")
    from bilax import settings
    from bilax.cli import own_problem
    from bilax.experiments import search
    from bilax.experiments.metrics import METRICS, SEARCHED_BY
    from bilax.running.sweep import one_program
    from bilax.sampling.samplers import resolve

    resolve(sampler)
    base, axes = settings.parse(setting), _axes(grid or [])
    one_program(search.grid(base, axes))  # a mistake shows before the data are loaded
    if own_problem.is_own(problem):
        title, loaded = problem, own_problem.load(problem)
        metric = "outer_loss" if metric is None else metric
    else:
        task = _task(problem, noise)
        title, loaded, metric = task.title, task.load(seed).problem, metric or SEARCHED_BY
    measure = search.measure_of(loaded)
    measured = measure(loaded.x0, loaded.y0)
    if metric not in measured:
        raise unknown(f"metric of {problem}", metric, measured)
    if math.isnan(measured[metric]):
        raise ValueError(
            f"{metric} is undefined here: without wrong labels there is nothing to tell apart. Search by val_loss, or "
            "give --noise above 0."
        )
    sign = -1 if maximise or (metric in METRICS and METRICS[metric].larger_is_better) else 1
    axes = axes or search.default_axes(loaded, base, steps, sampler)
    candidates = one_program(search.grid(base, axes))
    for name, values in axes.items():
        console.print(f"{name}: {', '.join(f'{value:.3g}' for value in values)}", highlight=False)
    console.print(f"{escape(title)}: {len(candidates)} settings", highlight=False)
    trials = search.search(
        loaded,
        candidates,
        lambda *point: sign * float(measure(*point)[metric]),
        steps=steps,
        rungs=rungs,
        seeds=[seed],
        sampler=sampler,
        announce=lambda text: console.print(text, highlight=False),
        checkpoint=RESULTS / ".tune",
    )
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for title in ("setting", "steps", metric):
        table.add_column(title, overflow="fold")
    for trial in trials[:10]:
        score = "diverged" if math.isinf(trial.score) else f"{sign * trial.score:.4g}"
        table.add_row(escape(settings.write(trial.algorithm)), str(trial.steps), score)
    console.print(table)
    if math.isinf(trials[0].score):
        raise ValueError("every setting diverged; search smaller step sizes.")
    best = trials[0].algorithm
    console.print(f"best: {escape(settings.write(best))}", highlight=False, soft_wrap=True)
    for name, values in axes.items():
        chosen = getattr(best, name)
        if len(values) > 2 and chosen in (min(values), max(values)):
            end = "smallest" if chosen == min(values) else "largest"
            console.print(f"{name} = {chosen:.3g} is the {end} that was tried: search further with --grid {name}=...")
    if out is not None:
        write_text(out, search.toml(best))
        console.print(f"written: {escape(str(out))}", highlight=False)


@app.command(epilog="Example: [bold]bilax report bilax-results[/bold]")
def report(
    folder: Annotated[Path, typer.Argument(help="What bilax run or bilax reproduce wrote.")] = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Folder for the page and the pictures.  \\[default: FOLDER]")] = None,
) -> None:
    """Write one HTML page (it works offline) with curves, tables, verdicts and images; PNG and PDF of every figure."""
    if out is not None:
        check_folder(out)
    _write_report(folder, out)


def _write_report(folder: Path, out: Path | None = None) -> None:
    from bilax.paper import pages
    from bilax.report import write

    page = pages.page(folder)
    path = write(page, out or folder)
    rows = pages.summary(page)
    if rows:
        variants = list(dict.fromkeys(variant for _, verdicts in rows for variant in verdicts))
        table = Table(box=box.SIMPLE, padding=(0, 1))
        for title in ("claim of the paper", *variants):
            table.add_column(title, overflow="fold")
        for claim, verdicts in rows:
            table.add_row(claim, *(verdicts.get(variant, "") for variant in variants))
        console.print(table)
        write_text(path.with_name("verdicts.md"), pages.markdown(page))
    console.print(f"page: {escape(str(path))}", highlight=False, soft_wrap=True)


def _check_budget(budget: float | None) -> None:
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise ValueError(f"--budget must be a number of seconds > 0; got {budget}.")


def _task(problem: str, noise: float | None) -> Any:
    from bilax.experiments.tasks import NOISY, Task

    return Task(problem, 0.3 if noise is None and problem in NOISY else noise)


def _axes(grid: list[str]) -> dict[str, Sequence[float]]:
    axes: dict[str, Sequence[float]] = {}
    for text in grid:
        name, sign, values = text.partition("=")
        sign = sign if name.strip() else ""
        if name.strip() in axes:
            raise ValueError(f"--grid {name.strip()} is given twice.")
        try:
            axes[name.strip()] = [_number(value) for value in values.split(",")]
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"--grid {text}: write it like gamma=1,10,100.")
    return axes


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
