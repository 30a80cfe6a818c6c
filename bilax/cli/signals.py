"""How the program ends when it is told to: soon, with what is saved, and with the exit status that shells expect."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from bilax.phase import CODES, Phase, Stop

PATIENCE = 1.5  # seconds that an orderly end may take after a second signal
GOES_ON = "interrupted; the same command goes on from what is saved."


@contextmanager
def watched() -> Iterator[None]:
    """Watch for signals in a thread of its own: the main one may be inside a compilation, or a step of hours.

    The first signal leaves a compilation at once (nothing is lost by that) and otherwise waits for the end of the step;
    the second one waits no longer. Python would run its handlers only once the compiled code comes back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    Phase.signal = None
    before = {number: signal.getsignal(number) for number in CODES}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores one: so it stays
            signal.signal(number, _stop)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True, name="signals").start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writer)
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: Any) -> None:
    Phase.signal = number
    raise Stop


def _watch(reader: int) -> None:
    seen = 0
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number not in CODES:
                continue
            seen += 1
            if Phase.compiling or seen > 1:
                if seen > 1:
                    time.sleep(PATIENCE)
                print(f"\n{GOES_ON}", file=sys.stderr)
                leave(CODES[number])


def exit_status() -> int:
    """Return the exit status of a program that was interrupted."""
    return CODES.get(Phase.signal or signal.SIGINT, 130)


def leave(status: int) -> NoReturn:
    """End the process now, whatever still computes: to wait for it may take hours, to take it down may crash."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
