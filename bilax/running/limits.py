"""When a run stops, when it measures, and what it says at the end."""

import math
from typing import Any, NamedTuple

from bilax.results import Status
from bilax.running.checks import checked_steps, positive

LONGEST = 128  # steps in one call of the compiled program
RESPONSE = 0.2  # seconds after which the program should come back, for the clock, the bar and Ctrl-C


class Limits(NamedTuple):
    first: int  # the iteration to begin with
    steps: int  # from there, at most
    every: int  # iterations from one measurement to the next
    pause: float  # or seconds
    seconds: float  # in the algorithm, at most
    tol: float
    longest: int = LONGEST  # steps in one call, if fewer

    @classmethod
    def checked(cls, steps: Any, every: Any, every_seconds: Any, time_limit: Any, tol: Any) -> "Limits":
        steps, every = checked_steps(steps, steps if every is None and every_seconds is not None else every)
        pause, seconds = positive("every_seconds", every_seconds), positive("time_limit", time_limit)
        wanted = -1.0 if tol is None else positive("tol", tol)
        if wanted == math.inf:
            raise ValueError("tol must be a finite number > 0; got inf.")
        return cls(0, steps, every, pause, seconds, wanted)

    def next_stop(self, k: int, seconds: float, pace: float) -> int:
        """Return the iteration at which the compiled program should come back; ``pace`` is seconds per step."""
        chunk = max(1, min(LONGEST, self.longest, int(min(RESPONSE, self.pause, self.seconds - seconds) / pace)))
        next_measurement = self.first + ((k - self.first) // self.every + 1) * self.every
        return min(self.first + self.steps, next_measurement, k + chunk)

    def measures(self, k: int, seconds_since: float) -> bool:
        return (k - self.first) % self.every == 0 or seconds_since >= self.pause

    def done(self, k: int, seconds: float) -> float:
        """Return how much of the run is over, from 0 to 1."""
        return max((k - self.first) / self.steps, seconds / self.seconds)

    def status(self, k: int, seconds: float, *, finite: bool, converged: bool, interrupted: bool) -> Status | None:
        """Return why the run ends here, or None if it goes on."""
        if not finite:
            return "diverged"
        if converged:
            return "converged"
        if k >= self.first + self.steps:
            return "done"
        if interrupted:
            return "interrupted"
        return "timeout" if seconds >= self.seconds else None

    def message(self, status: Status, k: int, told: str) -> str:
        """Return the status in words; ``told`` is the cause of a failure, or what the last look at all data showed."""
        if status == "failed":
            return f"{told} The run ended at step {k}; this is its state there."
        if status == "diverged":
            return f"step {k} gave numbers that are not finite; this is the state before it. The cause: {told}"
        if status == "converged":
            return f"converged after {k} steps: over all data {told}, each at most tol = {self.tol:g}."
        ends = {
            "timeout": f"the budget of {self.seconds:g} s was used up after {k} steps",
            "interrupted": f"interrupted after {k} steps",
            "done": f"{k} steps taken",
            "stopped": f"stopped after {k} steps, as the function stop wanted",
        }
        if self.tol < 0:
            return f"{ends[status]}."
        seen = f"the last look at all data had {told}" if told else "the estimate never fell to it"
        return f"{ends[status]}; not converged to tol = {self.tol:g}: {seen}."
