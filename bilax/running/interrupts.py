"""Signals as a wish to stop: Ctrl-C, and those by which a system ends a program or loses its terminal."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from bilax.phase import CODES, Phase

LONG = 0.2  # seconds: what takes as long, or nobody knows how long, is waited for in a way that a signal can end


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first signal into a wish to stop, so that the state is kept; the second one is obeyed at once.

    SIGTERM and SIGHUP are left to whoever else has a handler for them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()
    taken = [s for s in CODES if s == signal.SIGINT or _is_free(s)]
    previous = {s: signal.getsignal(s) for s in taken}

    def restore() -> None:
        for s, handler in previous.items():
            signal.signal(s, handler)

    def ask(signum: int, frame: Any) -> None:
        Phase.signal = signum
        asked.set()
        restore()

    for s in taken:
        signal.signal(s, ask)
    try:
        yield asked.is_set
    finally:
        restore()


def _is_free(number: int) -> bool:
    handler = signal.getsignal(number)
    return handler == signal.SIG_DFL or getattr(handler, "__module__", "").startswith("bilax.")


def wait(tree: Any, expected: float) -> Any:
    """Wait for arrays that are being computed; if that takes long, so that a signal can end the waiting."""
    if expected < LONG:
        return jax.block_until_ready(tree)
    leaves, pause = jax.tree.leaves(tree), 1e-4
    while not all(leaf.is_ready() for leaf in leaves if hasattr(leaf, "is_ready")):
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return jax.block_until_ready(tree)
