"""The commands. Each imports what it needs when it runs, so that --help is quick."""

import difflib
import json
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError:
    sys.exit("The command line needs typer and rich: pip install 'bilax[cli]'")

app = typer.Typer(
    name="bilax",
    help="Bilevel optimization in JAX: learn weights, penalties and other hyper-parameters by the thousand.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
console = Console()


def main() -> None:
    """Run the program; a user's mistake gets a message, not a traceback."""
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from bilax import __version__

        console.print(f"bilax {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = (
        False
    ),
) -> None:
    pass


@app.command(epilog="Example: [bold]bilax demo --out digits.png[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the picture (PNG).")] = Path("bilax-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Decides the split, the wrong labels and the batches.")] = 0,
) -> None:
    """Find the wrong labels among handwritten digits with MRBO and VRBO: a table and a picture."""
    _check_writable(out)
    from bilax.experiments import demo as experiment

    outcome = experiment.run(seed, announce=lambda text: console.print(text, highlight=False))
    experiment.picture(outcome, out)
    table = Table(box=box.SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("trained on or by", no_wrap=True)
    for title in ("loss", "accuracy", "AUROC", "seconds", "F", "G", "JV", "HV"):
        table.add_column(title, justify="right")
    for row in outcome.rows:
        calls = [""] * 4 if row.counts is None else [_short(getattr(row.counts, c)) for c in ("F", "G", "JV", "HV")]
        auroc = "" if row.auroc != row.auroc else f"{row.auroc:.3f}"
        numbers = (f"{row.train_loss:.3f}", f"{row.test_accuracy:.3f}", auroc, f"{row.seconds:.1f}")
        table.add_row(row.method, *numbers, *calls)
    console.print(table)
    console.print(
        "loss: on the true labels of the training digits; accuracy: on the test digits\n"
        "AUROC: how well the learned weights tell wrong from right labels (1 is perfect)\n"
        "seconds: without compilation; F, G, JV, HV: oracle calls, in samples",
        highlight=False,
    )
    console.print(f"picture: {out}", highlight=False)


@app.command(
    "list", epilog="Examples: [bold]bilax list[/bold], [bold]bilax list mrbo[/bold], [bold]bilax list --json[/bold]"
)
def list_algorithms(
    name: Annotated[str | None, typer.Argument(help="Only this method, with its hyper-parameters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")] = False,
) -> None:
    """List the methods: loops, variance reduction, oracle calls per iteration, proven complexity, reference."""
    from bilax.cli.catalogue import catalogue

    entries = catalogue()
    if name is not None:
        names = [entry["name"] for entry in entries]
        if name.lower() not in names:
            close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.4)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ValueError(f"no method is called {name!r}.{hint} There are {', '.join(names)}.")
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
        facts.add_row("proven", entry["complexity"])
        facts.add_row("reference", entry["reference"])
        if name is not None:
            for parameter in entry["parameters"]:
                meaning = f"{parameter['meaning']} ({parameter['allowed']})"
                facts.add_row(f"[bold]{parameter['name']}[/bold] = {parameter['default']}", meaning)
        console.print(facts)
    if name is None:
        console.print("\nHyper-parameters of one method: [bold]bilax list NAME[/bold]", highlight=False)


@app.command(epilog="Example: [bold]bilax reproduce table1 --quick[/bold]")
def reproduce(
    experiment: Annotated[str, typer.Argument(help="Which experiment: table1.")],
    seeds: Annotated[int, typer.Option(min=2, help="Runs per setting.")] = 8,
    quick: Annotated[bool, typer.Option(help="A hundredth of the iterations, only to see that it works.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the table to this file (Markdown) as well.")] = None,
) -> None:
    """Run an experiment of the paper. table1: oracle calls to reach a target, for every method, with fitted slopes."""
    if experiment != "table1":
        raise ValueError(f"no experiment is called {experiment!r}. There is table1.")
    if out is not None:
        _check_writable(out)
    import jax

    from bilax.experiments import table1

    jax.config.update("jax_enable_x64", True)
    rows = table1.run(seeds=seeds, scale=0.01 if quick else 1.0, announce=lambda text: console.print(text))
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
    if out is not None:
        out.write_text(table1.markdown(rows) + "\n")
        console.print(f"written: {out}", highlight=False)


def _check_writable(out: Path) -> None:
    """Refuse before the work is done, not after."""
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"cannot write {out}: give a file name in a folder that exists.")


def _short(number: int) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return str(number)
