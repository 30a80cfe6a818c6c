"""The commands that show: demo, list, doctor."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bilax.cli.shell import app, check_writable, console, short
from bilax.errors import unknown


@app.command(epilog="Example: [bold]bilax demo --out digits.png[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the picture (PNG).")] = Path("bilax-demo.png"),
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Decides the split, the wrong labels and the batches.")
    ] = 0,
) -> None:
    """Find the wrong labels among handwritten digits, and learn in spite of them: a table and a picture."""
    check_writable(out)
    if out.suffix.lower() != ".png":
        raise ValueError(f"cannot write {out}: give a file name that ends in .png.")
    from bilax.experiments import demo as experiment
    from bilax.report.optional_imports import required

    required("matplotlib", "the demo's picture", "plots")  # now, not after a minute
    outcome = experiment.run_demo(seed, announce=lambda text: console.print(text, highlight=False))
    experiment.picture(outcome, out)
    table = Table(box=box.SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("learned from or by", no_wrap=True)
    for title in ("accuracy", "AUROC", "seconds", "F", "G", "JV", "HV"):
        table.add_column(title, justify="right")
    for row in outcome.rows:
        calls = [""] * 4 if row.counts is None else [short(getattr(row.counts, c)) for c in ("F", "G", "JV", "HV")]
        table.add_row(row.method, f"{row.test_accuracy:.3f}", f"{row.auroc:.3f}", f"{row.seconds:.1f}", *calls)
    console.print(table)
    console.print(
        "accuracy: on the test digits; AUROC: how well wrong labels are told from right ones (1 is perfect)\n"
        "seconds: without compilation; F, G, JV, HV: oracle calls, in samples; all on average over the seeds\n"
        "Why it pays: the mistakes follow a rule, which plain training learns and cross-validation cannot see, and\n"
        "the trusted digits are too few to learn from alone. It pays less where labels are wrong at random.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"picture: {out}", highlight=False)


@app.command(
    "list", epilog="Examples: [bold]bilax list[/bold], [bold]bilax list mrbo[/bold], [bold]bilax list --json[/bold]"
)
def list_algorithms(
    name: Annotated[str | None, typer.Argument(help="Only this method, with its hyper-parameters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
) -> None:
    """List the methods: loops, variance reduction, calls per iteration, needs, proven complexity, reference."""
    from bilax.cli.catalogue import catalogue

    entries = catalogue()
    if name is not None:
        names = [entry["name"] for entry in entries]
        if name.lower() not in names:
            raise unknown("method", name, names)
        entries = [entry for entry in entries if entry["name"] == name.lower()]
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    for entry in entries:
        calls = ", ".join(f"{column} {formula}" for column, formula in entry["calls"].items())
        console.print(f"[bold]{entry['name']}[/bold]  {entry['summary']}", highlight=False)
        facts = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
        facts.add_row("loops", entry["loops"])
        facts.add_row("variance-reduced", entry["variance-reduced"])
        facts.add_row("calls per iteration", calls)
        for need, answer in entry["needs"].items():
            facts.add_row(need, answer or "none")
        facts.add_row("proven", entry["complexity"])
        facts.add_row("reference", entry["reference"])
        if name is not None:
            for parameter in entry["parameters"]:
                meaning = f"{parameter['meaning']} ({parameter['allowed']})"
                facts.add_row(f"[bold]{parameter['name']}[/bold] = {parameter['default']}", meaning)
        console.print(facts)
    if name is None:
        console.print("\nHyper-parameters of one method: [bold]bilax list NAME[/bold]", highlight=False)


@app.command(epilog="Examples: [bold]bilax doctor[/bold], [bold]bilax doctor --results bilax-results --mend[/bold]")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
    results: Annotated[Path | None, typer.Option(help="Look for damaged files among the runs in this folder.")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="Mend them: what is damaged is set aside, not removed.")] = False,
    empty_cache: Annotated[
        bool, typer.Option("--empty-cache", help="Remove the compiled programs that are kept.")
    ] = False,
) -> None:
    """Tell what is installed, which devices JAX sees, which data are there, and what to do about what is missing."""
    from bilax.cli import compile_cache
    from bilax.cli import doctor as diagnosis

    if empty_cache:
        removed = compile_cache.empty()
        console.print(f"removed {removed / 2**20:.1f} MiB of compiled programs", highlight=False)
        return None
    if mend and results is None:
        raise ValueError("--mend needs --results FOLDER, the folder with the runs to mend.")
    if results is not None:
        return _examine(results, mend, as_json)
    found = diagnosis.report()
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        diagnosis.show(console, found)
    if not found.ok:
        raise typer.Exit(1)


def _examine(results: Path, mend: bool, as_json: bool) -> None:
    from bilax.storage.mending import damages

    found = damages(results)
    for damage in found if mend else ():
        damage.mend()
    if as_json:
        print(json.dumps([{"path": str(d.path), "what": d.what, "remedy": d.remedy} for d in found], indent=2))
    else:
        for damage in found:
            remedy = damage.remedy if mend else f"--mend: {damage.remedy}"
            console.print(f"{escape(str(damage.path))}: {damage.what} ({remedy})", highlight=False, soft_wrap=True)
        console.print(f"{len(found)} damaged" if found else "all runs are intact", highlight=False)
    if found and not mend:
        raise typer.Exit(1)
