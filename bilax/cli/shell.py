"""The program itself: its options, its console, how it reports a mistake."""

import gc
import io
import os
import sys
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from bilax.cli import compile_cache, signals

app = typer.Typer(
    name="bilax",
    help="Bilevel optimization in JAX: learn weights, penalties and other hyper-parameters by the thousand.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read the output (`| head`) has seen enough; the work goes on without it."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if os.environ.get("COLUMNS", "80").strip() in ("", "0"):  # nothing would be shown
    del os.environ["COLUMNS"]
console = _Screen()


STARTING = 3.0  # seconds


def main() -> None:
    """Run the program; a user's mistake gets a message, not a traceback."""
    _collect_no_garbage_yet()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without accents shows a question mark
    try:
        with signals.watched():
            app()
    except SystemExit as end:
        if signals.Phase.signal is not None and isinstance(end.code, int):
            signals.leave(end.code)
        raise
    except (KeyboardInterrupt, signals.Stop):
        _complain(signals.GOES_ON)
        signals.leave(signals.exit_status())
    except RuntimeError as error:
        if "backend" not in str(error):
            raise
        chosen = os.environ.get("JAX_PLATFORMS", "")
        _complain(f"[red]error:[/red] JAX cannot start on JAX_PLATFORMS={chosen!r}; unset it, or set it to cpu.")
        sys.exit(1)
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        _complain(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(1)


def _collect_no_garbage_yet() -> None:
    """What a start makes is kept; to look for garbage in it takes a sixth of the time to the first step."""
    gc.disable()
    later = Timer(STARTING, gc.enable)
    later.daemon = True
    later.start()


def _complain(text: str) -> None:
    _Screen(stderr=True).print(text, highlight=False, soft_wrap=True)


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
    compile_cache.switch_on()


def check_writable(out: Path) -> None:
    """Refuse a file that cannot be written, before the work is done."""
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"cannot write {out}: give a file name in a folder that exists.")


def check_folder(out: Path) -> None:
    """Refuse a folder that cannot be made, before the work is done."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists() or path.is_symlink())
    if not there.is_dir():
        raise ValueError(f"cannot write into {out}: {there} is not a folder.")


def short(number: int) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return str(number)
