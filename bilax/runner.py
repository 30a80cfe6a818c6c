"""Drive any algorithm on any problem: compile once, scan in chunks, measure outside the clock."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from bilax import keys, loop, progress, unsafe_eta
from bilax.algorithms.protocol import Algorithm, Info
from bilax.hyperparameters import names_of
from bilax.loop import Run
from bilax.oracle import Counts, make_oracle
from bilax.problem import Metrics, Problem, as_variable
from bilax.results import History, Result, Status
from bilax.sampler import Sampler, full, resolve
from bilax.types import PyTree, Scalar

LONGEST = 128  # steps in one call of the compiled program
RESPONSE = 0.2  # seconds after which the program should come back, for the clock, the bar and Ctrl-C


def solve(
    problem: Problem,
    algorithm: Algorithm,
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seed: int = 0,
    sampler: str | Sampler = "iid",
    every: int | None = None,
    every_seconds: float | None = None,
    metrics: Metrics | None = None,
    time_limit: float | None = None,
    tol: float | None = None,
    progress: bool | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Run an algorithm on a problem.

    Args:
      problem: what to solve.
      algorithm: with which method and hyper-parameters, e.g. ``bilax.MRBO(gamma=0.1)``.
      x0, y0: where to start; pytrees of floating arrays. By default what the problem says.
      steps: iterations of the algorithm, at most.
      seed: decides every batch. Nothing else does: not ``every``, not the clock.
      sampler: "iid" (with replacement), "epoch" (shuffled, without), "full" (all data), or a function.
      every: iterations from one measurement to the next; by default about 20 measurements.
      every_seconds: measure instead when so many seconds have passed in the algorithm since the last time.
      metrics: ``metrics(x, y) -> {name: number}``; its time is kept apart. By default the problem's.
      time_limit: stop after so many seconds in the algorithm, compilation and metrics not counted.
      tol: stop once the norm of the hypergradient estimate is at most this.
      progress: show a bar; by default if standard error is a terminal.
      on_row: called with every row of the history as soon as it is measured.

    Returns:
      A `Result`. A run that turns non-finite ends with the status "diverged" and its last finite state.

    >>> import jax.numpy as jnp
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> from bilax.algorithms import MRBO
    >>> result = solve(problem, MRBO(gamma=0.5, lam=0.5, S=5), jnp.zeros(()), jnp.zeros(()), steps=200)
    >>> result.status, round(float(result.x), 2)
    ('done', 1.0)
    """
    check_arguments(problem, algorithm)
    steps, every = checked_steps(steps, steps if every is None and every_seconds is not None else every)
    pause = math.inf if every_seconds is None else _positive("every_seconds", every_seconds)
    limit = math.inf if time_limit is None else _positive("time_limit", time_limit)
    x0, y0 = starting_point(problem, x0, y0)
    sampler = resolve(sampler)
    advance = partial(
        loop.advance,
        problem.functions,
        sampler,
        algorithm,
        problem.outer_data,
        problem.inner_data,
        keys.root(checked_seed(seed)),
        jnp.asarray(-1.0 if tol is None else _positive("tol", tol), float),
    )
    cost = cost_per_step(algorithm, problem, sampler)
    samples = samples_per_step(algorithm, problem, sampler)
    measure = _Measurements(metrics or problem.metrics, samples, on_row)

    run = loop.start(algorithm.init(x0, y0))
    measure(run, 0.0, Counts())  # before the compilation, so that there is something to see
    tic = time.perf_counter()
    jax.block_until_ready(advance(run, 0, False))  # no steps: this compiles
    warned = unsafe_eta.check_start(algorithm, problem, run.state)
    compile_seconds = time.perf_counter() - tic

    counts, seconds, pace, status = Counts(), 0.0, RESPONSE, None
    k = 0
    with _interrupts() as interrupted, _bar(algorithm, progress) as update:
        while status is None:
            stop = min(
                steps,
                (k // every + 1) * every,
                k + max(1, min(LONGEST, int(min(RESPONSE, pause, limit - seconds) / pace))),
            )
            tic = time.perf_counter()
            before, run = run, jax.block_until_ready(advance(run, stop, warned))
            elapsed = time.perf_counter() - tic
            if run.grew and not warned:
                last = advance(before, int(run.state.k) - 1, True).state
                unsafe_eta.warn_series_grows(algorithm, problem, last, run.info)
                warned = True
            diverged = not loop.is_finite(run)
            if diverged:
                run = _last_finite(advance, before, run, warned)
            done = int(run.state.k)
            counts = sum((cost(i) for i in range(k, done)), counts) + Counts(HV=int(run.HV), JV=int(run.JV))
            seconds += elapsed
            pace = max(elapsed, 1e-6) / max(1, done - k)
            k = done
            status = "diverged" if diverged else _why_stop(run, k >= steps, seconds >= limit, interrupted())
            if k > measure.k and (status is not None or k % every == 0 or seconds >= measure.at + pause):
                measure(run, seconds, counts)
            update(max(k / steps, seconds / limit), f"step {k}, |v| = {float(run.info.norm_v):.2e}")

    return Result(
        x=run.state.x,
        y=run.state.y,
        state=run.state,
        counts=counts,
        history=measure.history,
        status=status,
        message=_message(status, run, k, tol, time_limit),
        seconds=seconds,
        compile_seconds=compile_seconds,
        eval_seconds=measure.seconds,
    )


def iterate(
    problem: Problem,
    algorithm: Algorithm,
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seed: Scalar = 0,
    sampler: str | Sampler = "iid",
) -> tuple[Any, Info]:
    """Run ``steps`` iterations as one pure function: to be jitted, differentiated, or vmapped over hyper-parameters.

    Returns the last state and the `Info` of every step, stacked. The iterates are those of `solve`.

    >>> import jax, jax.numpy as jnp
    >>> from bilax.algorithms import MRBO
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> def final_x(gamma):
    ...     return iterate(problem, MRBO(gamma=gamma), jnp.zeros(()), jnp.zeros(()), steps=50)[0].x
    >>> jax.vmap(final_x)(jnp.array([0.01, 0.1, 1.0])).shape
    (3,)
    """
    steps, _ = checked_steps(steps, None)
    oracle = make_oracle(problem, sampler)
    state = algorithm.init(*starting_point(problem, x0, y0))
    return loop.iterations(oracle, algorithm, keys.root(seed), state, steps)


class _Measurements:
    """The history under way, and the time that measuring took."""

    def __init__(self, metrics: Metrics | None, samples: float, on_row: Callable[[dict[str, Any]], None] | None):
        self.metrics, self.samples, self.on_row = metrics, samples, on_row
        self.history, self.seconds, self.k, self.at = History(), 0.0, 0, 0.0

    def __call__(self, run: Run, seconds: float, counts: Counts) -> None:
        tic = time.perf_counter()
        self.k, self.at = int(run.state.k), seconds
        row = {"k": self.k, "seconds": seconds, "samples": self.k * self.samples, **asdict(counts)}
        info = {name: value for name, value in run.info._asdict().items() if name not in row}
        if self.k > 0:
            row |= {name: np.asarray(value).item() for name, value in info.items()}
        self.history.rows.append(row | self._measured({*row, *info}, run))
        if self.on_row is not None:
            self.on_row(self.history[-1])
        self.seconds += time.perf_counter() - tic

    def _measured(self, taken: set[str], run: Run) -> dict[str, Any]:
        if self.metrics is None:
            return {}
        measured = self.metrics(run.state.x, run.state.y)
        if not isinstance(measured, Mapping):
            raise TypeError(f"metrics must return a dictionary of names and numbers; it returned {measured!r}.")
        for name, value in measured.items():
            if name in taken:
                raise ValueError(f"metrics may not return {name!r}: that name is the history's own. Choose another.")
            if np.ndim(value) != 0:
                raise TypeError(f"metrics must return numbers; {name!r} has the shape {np.shape(value)}.")
        return {name: np.asarray(value).item() for name, value in measured.items()}


def cost_per_step(algorithm: Algorithm, problem: Problem, sampler: Sampler) -> Callable[[int], Counts]:
    """Return the declared calls of step k, for the batches that the sampler really makes."""
    on_outer, on_inner = _with_real_batches(algorithm, problem, sampler)
    return algorithm.cost if on_outer is on_inner else lambda k: replace(on_inner.cost(k), F=on_outer.cost(k).F)


def samples_per_step(algorithm: Algorithm, problem: Problem, sampler: Sampler) -> float:
    """Return how many samples a step draws, on average; a batch that is used twice counts once.

    Those on which ``eta="auto"`` measures L are not among them.
    """
    if not hasattr(algorithm, "about"):
        return math.nan
    on_outer, on_inner = _with_real_batches(algorithm, problem, sampler)
    return float(_evaluate("F", on_outer) + _evaluate("G", on_inner))


def _evaluate(level: str, algorithm: Any) -> float:
    values = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    return eval(algorithm.about.draws[level], {"__builtins__": {}}, values)  # a formula of our own


def _with_real_batches(algorithm: Algorithm, problem: Problem, sampler: Sampler) -> tuple[Any, Any]:
    """Return the algorithm with the batch sizes that it really gets from the outer and from the inner data."""
    sizes = names_of("batch_size", algorithm)
    if sampler is not full or not sizes:
        return algorithm, algorithm
    # The whole data set stands for a batch of any size.
    return (
        replace(cast(Any, algorithm), **dict.fromkeys(sizes, problem.outer_size)),
        replace(cast(Any, algorithm), **dict.fromkeys(sizes, problem.inner_size)),
    )


def _last_finite(advance: Callable[[Run, int, bool], Run], before: Run, run: Run, warned: bool) -> Run:
    """Go back, from a state that is not finite, to the last one that is, by taking the steps to it again."""
    while not loop.is_finite(run) and run.state.k > before.state.k:
        run = advance(before, int(run.state.k) - 1, warned)
    return run


def _why_stop(run: Run, finished: bool, late: bool, interrupted: bool) -> Status | None:
    if run.converged or finished:
        return "done"
    if interrupted:
        return "interrupted"
    return "timeout" if late else None


def _message(status: Status, run: Run, k: int, tol: float | None, time_limit: float | None) -> str:
    if status == "diverged":
        hint = "Look for numbers that are not finite in x0, y0 and the data." if k == 0 else "Try smaller step sizes."
        return f"step {k} gave numbers that are not finite; this is the state before it. {hint}"
    if status == "timeout":
        return f"the time limit of {time_limit:g} s was reached after {k} steps."
    if status == "interrupted":
        return f"interrupted after {k} steps."
    if run.converged:
        return f"the norm of the estimate fell to {float(run.info.norm_v):.3g} <= tol = {tol:g} after {k} steps."
    return f"{k} steps taken."


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a wish to stop, so that the state is kept; the second one is obeyed at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()
    previous = signal.getsignal(signal.SIGINT)

    def ask(signum: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, previous)


def _bar(algorithm: Any, shown: bool | None):
    return progress.bar(type(algorithm).__name__, shown)


def check_arguments(problem: Any, algorithm: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"the first argument must be a bilax.Problem; got {type(problem).__name__}.")
    if isinstance(algorithm, type):
        raise TypeError(f"algorithm must be an instance: write {algorithm.__name__}() with its hyper-parameters.")
    if not all(callable(getattr(algorithm, name, None)) for name in ("init", "step", "cost")):
        raise TypeError(
            f"algorithm must have init, step and cost, like bilax.MRBO() or bilax.ALGORITHMS['mrbo'](); "
            f"got {algorithm!r}."
        )
    for path, leaf in jax.tree.leaves_with_path(algorithm):
        if np.ndim(leaf) != 0:
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{type(algorithm).__name__}: {name} has the shape {np.shape(leaf)}; solve takes one setting at a "
                "time. For a grid, give a list of settings to bilax.sweep."
            )


def starting_point(problem: Problem, x0: PyTree, y0: PyTree) -> tuple[PyTree, PyTree]:
    return (
        as_variable("x0", problem.x0 if x0 is None else x0),
        as_variable("y0", problem.y0 if y0 is None else y0),
    )


def checked_steps(steps: Any, every: Any) -> tuple[int, int]:
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be an integer >= 1; got {steps!r}.")
    if every is None:
        every = max(1, math.ceil(steps / 20))
    if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
        raise ValueError(f"every (iterations from one measurement to the next) must be an integer >= 1; got {every!r}.")
    return int(steps), int(every)


def checked_seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2**32 - 1; got {seed!r}.")
    return int(seed)


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number > 0:
        raise ValueError(f"{name} must be a number > 0; got {value!r}.")
    return number
