"""The command that judges the labels of a table."""

import glob
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bilax.cli import signals
from bilax.cli.shell import app, check_writable, console
from bilax.storage.files import replacing


@app.command(
    epilog="Examples: [bold]bilax clean train.csv --label target --trusted trusted.csv[/bold], "
    "[bold]bilax clean labels.csv --label class --images pictures --trusted checked.csv[/bold], "
    "[bold]bilax clean train.csv --label target --trusted trusted.csv --decisions train-decisions.csv[/bold]"
)
def clean(
    train: Annotated[Path, typer.Argument(help="A table with labels, some of them wrong: CSV or Parquet.")],
    label: Annotated[str, typer.Option(help="The column of the labels.")],
    trusted: Annotated[Path | None, typer.Option(help="A table of the same columns, whose labels are right.")] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="What was exported from the page: rows that are trusted.")
    ] = None,
    id: Annotated[str | None, typer.Option(help="A column that names the rows.  \\[default: numbers from 1]")] = None,
    images: Annotated[Path | None, typer.Option(help="A folder of images, which the column --file names.")] = None,
    file: Annotated[str, typer.Option(help="The column with the images' files.")] = "file",
    features_only: Annotated[bool, typer.Option("--features-only", help="All columns are numbers: use them as is.")] = (
        False
    ),
    out: Annotated[Path, typer.Option(help="Every row's quality, rank and suggested label: .csv or .parquet.")] = Path(
        "weights.csv"
    ),
    report: Annotated[Path, typer.Option(help="A page with the answer and the rows to look at.")] = Path("clean.html"),
    method: Annotated[str, typer.Option(help="Any of those in bilax list.")] = "mrbo",
    steps: Annotated[int, typer.Option(min=1, help="Of the method, at most.")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides all that is random.")] = 0,
) -> None:
    """Find the wrong labels of a table or of a folder of images, with the help of a few trusted ones."""
    for path, endings in ((out, (".csv", ".parquet")), (report, (".html",))):
        check_writable(path)
        if path.suffix not in endings:
            raise ValueError(f"cannot write {path}: give a name that ends in {' or '.join(endings)}.")
    if images is not None and not images.is_dir():
        raise FileNotFoundError(f"there is no folder {images}.")
    from bilax.cleaning import page
    from bilax.cleaning.clean import Request, check_method
    from bilax.cleaning.clean import clean as judged

    check_method(method)
    request = Request(train, label, trusted, decisions, id, images, file, features_only, method, steps, seed)
    kept = out.with_name(f".{out.name}.{request.fingerprint()}.part")  # of a run that was interrupted
    command = "bilax " + shlex.join(sys.argv[1:])
    announce = lambda text: console.print(escape(text), highlight=False, soft_wrap=True)  # noqa: E731
    try:
        cleaned = judged(request._replace(checkpoint_dir=kept), command, announce)
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on from here.", highlight=False)
        raise typer.Exit(signals.exit_status()) from None
    for warning in cleaned.warnings:
        console.print(f"[yellow]note:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)
    with replacing(out) as stream:
        if out.suffix == ".parquet":
            cleaned.table.to_parquet(stream, index=False)
        else:
            cleaned.table.to_csv(stream, index=False)
    page.write(cleaned.found, report)
    for part in out.parent.glob(f".{glob.escape(out.name)}.*.part"):
        shutil.rmtree(part, ignore_errors=True)
    console.print(f"[bold]{escape(cleaned.found.answer)}[/bold]", highlight=False, soft_wrap=True)
    console.print(f"every row: {escape(str(out))}; the rows to look at: {escape(str(report))}", highlight=False)
