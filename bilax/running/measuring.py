"""The history under way: rows of measurements, made outside the clock."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bilax.numerics.processes import gathered
from bilax.oracle import Counts
from bilax.problem import Metrics, reads_carried
from bilax.results import History
from bilax.running.inspection import Losses
from bilax.running.loop import LoopState
from bilax.types import PyTree


class Measurements:
    """Makes the rows of a history, and knows the time that measuring took."""

    def __init__(
        self,
        losses: Callable[[Any, PyTree], dict[str, float]],
        metrics: Metrics | None,
        samples: float,
        on_row: Callable[[dict[str, Any]], None] | None,
    ):
        self.losses, self.metrics, self.samples, self.on_row = losses, metrics, samples, on_row
        self.history, self.seconds, self.k, self.at, self.extra = History(), 0.0, 0, 0.0, False

    def __call__(self, loop: LoopState, seconds: float, counts: Counts, *, regular: bool = True) -> None:
        """Measure. A row that is not regular is there because the run ends here: one that goes on does without it."""
        tic = time.perf_counter()
        self.k, self.at, self.extra = int(loop.state.k), seconds, not regular
        row = {"k": self.k, "seconds": seconds, "samples": self.k * self.samples, **asdict(counts)}
        told = {name: value for name, value in loop.info.told().items() if name not in row}
        if len(self.history) > 0:  # before the first step nothing is told
            row |= {name: np.asarray(value).item() for name, value in told.items()}
        row |= self.losses(loop.state, loop.memory.carried)
        self.history.rows.append(row)
        try:
            self.history.rows[-1] = row | self._measured({*row, *told} - {*Losses._fields}, loop)
            if self.on_row is not None:
                self.on_row(self.history[-1])
        finally:
            self.seconds += time.perf_counter() - tic

    def kept(self) -> dict[str, Any]:
        """Return what a run needs to go on as if it had not stopped."""
        regular = self.history.rows[: -1 if self.extra else None]
        return {"rows": regular, "last": self.history.rows[len(regular) :], "seconds": self.seconds}

    def restore(self, kept: dict[str, Any], *, ended: bool) -> None:
        self.history, self.seconds = History([*kept["rows"], *(kept["last"] if ended else [])]), kept["seconds"]
        self.k, self.at = self.history[-1]["k"], self.history[-1]["seconds"]

    def _measured(self, taken: set[str], loop: LoopState) -> dict[str, Any]:
        if self.metrics is None:
            return {}
        carried = (loop.memory.carried,) if reads_carried(self.metrics) else ()
        measured = self.metrics(*gathered((loop.state.x, loop.state.y)), *carried)
        if not isinstance(measured, Mapping):
            raise TypeError(f"metrics must return a dictionary of names and numbers; it returned {measured!r}.")
        for name, value in measured.items():
            if not isinstance(name, str):
                raise TypeError(f"metrics must return a dictionary of names and numbers; {name!r} is no name.")
            if name in taken:
                raise ValueError(f"metrics may not return {name!r}: that name is the history's own. Choose another.")
            if np.ndim(value) != 0:
                raise TypeError(f"metrics must return numbers; {name!r} has the shape {np.shape(value)}.")
            if np.asarray(value).dtype.kind not in "biuf":
                raise TypeError(f"metrics must return numbers; {name!r} is {value!r}.")
        return {name: np.asarray(value).item() for name, value in measured.items()}
