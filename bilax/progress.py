"""A progress bar on a terminal, and silence everywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(total: int, label: str, shown: bool | None) -> Iterator[Callable[[int, str], None]]:
    """Yield ``update(done, note)``. ``shown=None`` shows the bar if standard error is a terminal."""
    forced = bool(shown)
    if shown is None:
        shown = sys.stderr.isatty()
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        shown = False
    if not shown:
        yield lambda done, note: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True, force_terminal=forced or None), transient=True) as progress:
        task = progress.add_task(label, total=total, note="")
        yield lambda done, note: progress.update(task, completed=done, note=note)
