"""A progress bar on a terminal, and silence everywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def bar(label: str, shown: bool | None) -> Iterator[Callable[[float, str], None]]:
    """Yield ``update(done, note)``, done from 0 to 1. ``shown=None`` shows the bar if standard error is a terminal."""
    forced = bool(shown)
    if not (forced or (shown is None and sys.stderr.isatty())) or find_spec("rich") is None:
        yield lambda done, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True, force_terminal=True if forced else None)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=1.0, note="")
        yield lambda done, note: progress.update(task, completed=done, note=note)
