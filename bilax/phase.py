"""What a program is at when it is told to stop. Importing this imports no JAX."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = {"SIGINT": 2, "SIGTERM": 15, "SIGHUP": 1}
CODES = {int(getattr(signal, name)): 128 + n for name, n in _NUMBERS.items() if hasattr(signal, name)}  # exit statuses


class Stop(BaseException):
    """The wish to stop, in a program that is not in a run; like KeyboardInterrupt, but nobody else catches it."""


class Phase:
    compiling = False
    signal: int | None = None  # the last one that was taken for a wish to stop


@contextmanager
def compiling() -> Iterator[None]:
    """Mark a compilation: it cannot be interrupted, only left."""
    Phase.compiling = True
    try:
        yield
    finally:
        Phase.compiling = False
