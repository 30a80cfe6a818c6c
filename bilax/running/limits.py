"""When a run stops, when it measures, and what it says at the end."""

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

    @classmethod
    def checked(cls, steps: Any, every: Any, every_seconds: Any, time_limit: Any, tol: Any) -> "Limits":
        steps, every = checked_steps(steps, steps if every is None and every_seconds is not None else every)
        pause, seconds = positive("every_seconds", every_seconds), positive("time_limit", time_limit)
        return cls(0, steps, every, pause, seconds, -1.0 if tol is None else positive("tol", tol))

    def next_stop(self, k: int, seconds: float, pace: float) -> int:
        """Return the iteration at which the compiled program should come back; ``pace`` is seconds per step."""
        chunk = max(1, min(LONGEST, int(min(RESPONSE, self.pause, self.seconds - seconds) / pace)))
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

    def message(self, status: Status, k: int, norm_v: float) -> str:
        if status == "diverged":
            hint = (
                "Look for numbers that are not finite in x0, y0 and the data."
                if k == self.first
                else "Try smaller step sizes."
            )
            return f"step {k} gave numbers that are not finite; this is the state before it. {hint}"
        if status == "timeout":
            return f"the time limit of {self.seconds:g} s was reached after {k} steps."
        if status == "interrupted":
            return f"interrupted after {k} steps."
        if status == "converged":
            return f"the norm of the estimate fell to {norm_v:.3g} <= tol = {self.tol:g} after {k} steps."
        return f"{k} steps taken."
