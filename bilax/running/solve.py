"""Drive any algorithm on any problem: compile once, run in chunks, measure outside the clock."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bilax.algorithms.protocol import Algorithm
from bilax.errors import Doubts
from bilax.functions import unconstrained
from bilax.numerics.processes import as_the_first_says, if_any, is_first, noticing_the_lost, whole
from bilax.oracle import Counts, Oracle
from bilax.phase import Stop, compiling
from bilax.problem import Metrics, Problem
from bilax.results import History, Result
from bilax.running import devices, diagnosis, eta_warnings, keeping, loop
from bilax.running.accounting import Account, plain
from bilax.running.checks import check_arguments, check_memory, check_options, first_state
from bilax.running.going_on import restored
from bilax.running.inspection import Inspector
from bilax.running.interrupts import interrupts, wait
from bilax.running.keeping import Keeper
from bilax.running.limits import RESPONSE, Limits
from bilax.running.measuring import Measurements
from bilax.running.programs import make_room
from bilax.running.progress import bar
from bilax.running.reading import ReadingAhead
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.storage.trees import with_memory
from bilax.types import PyTree

PATIENCE = 10  # steps, at least, from one look at all data to the next


def solve(
    problem: Problem | Oracle,
    algorithm: Algorithm,
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seed: int = 0,
    sampler: str | Sampler = "iid",
    state: Any = None,
    every: int | None = None,
    every_seconds: float | None = None,
    metrics: Metrics | None = None,
    time_limit: float | None = None,
    tol: float | None = None,
    progress: bool | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[History], bool] | None = None,
    checkpoint_dir: str | Path | None = None,
    mesh: Mesh | None = None,
) -> Result:
    """Run an algorithm on a problem.

    Args:
      problem: what to solve; an `Oracle` of your own will do, too.
      algorithm: with which method and hyper-parameters, e.g. ``bilax.MRBO(gamma=0.1)``.
      x0: where x starts, a pytree of floating arrays; by default where the problem says.
      y0: where y starts, likewise.
      steps: iterations of the algorithm, at most.
      seed: decides every batch. Nothing else does: not ``every``, not the clock.
      sampler: "iid" (with replacement), "epoch" (shuffled, without), "blocks" (slices of a copy of the data that was
        shuffled once: the fastest), "block-epoch" (each once per pass), "full" (all data), or a function.
      state: go on from ``result.state`` of an earlier call, for ``steps`` more iterations, as if it had not stopped.
      every: iterations from one measurement to the next; by default about 20 measurements.
      every_seconds: measure instead when so many seconds have passed in the algorithm since the last time.
      metrics: ``metrics(x, y) -> {name: number}``; its time is kept apart. By default the problem's.
      time_limit: stop after so many seconds in the algorithm, compilation and metrics not counted.
      tol: stop once the run has converged: the estimate has fallen to this norm, and a look at all data, outside of
        the clock and of the counts, finds the hypergradient, the inner gradient and the residual of the linear system
        at most this, too.
      progress: show a bar; by default if standard error is a terminal.
      on_row: called with every row of the history as soon as it is measured.
      stop: called with the history after every measurement; the run ends where it returns True, with the status
        "stopped". It must be decided by the history alone, so that a run that goes on from a folder ends there too.
      checkpoint_dir: a folder in which the run is saved as it goes. The same call again goes on from there, bit for bit
        as if it had not stopped; ``steps`` and ``time_limit`` are those of the whole run, and may be larger this time.
      mesh: devices to share the work, e.g. ``jax.make_mesh((8,), ("data",))``: the data lie along the axis "data" (or
        the first one), with all of x that has one entry per sample; the rest is on every device, or as you laid it out.
        Batches are drawn evenly from all parts of the data, so that a seed means the same samples on any number of
        devices; their sizes must be multiples of it. The sampler is "iid", "epoch" or "full".

    Returns:
      A `Result`, with why the run ended (``status``, ``message``) and why it should not be trusted (``warnings``). A
      run that turns non-finite ends with the status "diverged" and its last finite state.

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
    check_options(metrics, on_row, progress, stop)
    limits = Limits.checked(steps, every, every_seconds, time_limit, tol)
    run = _Runner(problem, algorithm, sampler, seed, limits.tol, (x0, y0), state, checkpoint_dir, mesh)
    metrics = getattr(problem, "metrics", None) if metrics is None else metrics
    on_row, progress = (on_row, progress) if is_first() else (None, False)  # one process shows what goes on
    measure = Measurements(run.inspector.losses, metrics, run.account.samples_per_step, on_row)
    longest = min(limits.longest, run.account.steps_per_call(run.now.state.y))
    limits, status = limits._replace(first=run.k, longest=longest), None
    if (kept := run.restore()) is not None:
        limits = limits._replace(first=kept["first"])
        status = limits.status(run.k, run.seconds, finite=True, converged=run.keeps_verdict(kept), interrupted=False)
        measure.restore(kept["measured"], ended=status is not None)
        if run.k > measure.k and (run.k - limits.first) % limits.every == 0:
            measure(run.now, run.seconds, run.counts)  # this failed the last time
        if status is None and stop is not None and run.k == measure.k and stop(measure.history):
            status = "stopped"
    else:
        measure(run.now, 0.0, run.counts)  # before the compilation, so that there is something to see
    if status is None:
        run.compile()
    others, showing = noticing_the_lost(checkpoint_dir), bar(type(algorithm).__name__, progress)
    with others, interrupts() as interrupted, showing as update, run.reading():
        while status is None:
            try:
                stop_at = as_the_first_says(limits.next_stop(run.k, run.seconds, run.pace))
                finite = run.advance(int(stop_at))
            except (KeyboardInterrupt, Stop):  # the second one, in a long step: its start is the last state there is
                status = "interrupted"
                run.save(status, limits.first, measure)
                break
            converged = finite and run.has_converged()
            told_to_stop = if_any(interrupted())
            status = limits.status(run.k, run.seconds, finite=finite, converged=converged, interrupted=told_to_stop)
            regular = limits.measures(run.k, run.seconds - measure.at)
            if run.k > measure.k and (status is not None or regular):
                try:
                    measure(run.now, run.seconds, run.counts, regular=regular)
                    if status is None and stop is not None and stop(measure.history):
                        status = "stopped"
                except Exception as error:
                    status, run.told, measure.extra = "failed", f"{type(error).__name__}: {error}", True
            run.save(status, limits.first, measure)
            update(limits.done(run.k, run.seconds), f"step {run.k}, |v| = {run.norm_v:.2e}")
    if status != "diverged":
        run.judge(measure.history)
    return Result(
        x=run.now.state.x,
        y=run.now.state.y,
        state=with_memory(run.now.state, run.now.memory),
        counts=run.counts,
        history=measure.history,
        status=status,
        message=limits.message(status, run.k, run.told),
        warnings=tuple(run.doubts.texts),
        seconds=run.seconds,
        compile_seconds=run.compile_seconds,
        eval_seconds=measure.seconds + run.inspection_seconds,
    )


class _Runner:
    """A run under way: its state, its clock, its counts."""

    def __init__(
        self,
        problem: Problem | Oracle,
        algorithm: Algorithm,
        sampler: str | Sampler,
        seed: int,
        tol: float,
        start: tuple[PyTree, PyTree],
        state: Any,
        checkpoint_dir: str | Path | None,
        mesh: Any,
    ):
        self.problem, start = devices.prepared(problem, sampler, mesh, algorithm, start, state)
        self.algorithm, self.stream = algorithm, self.problem.put(keys.root(keys.checked_seed(seed)))
        make_room(getattr(self.problem, "functions", None))
        self.account = Account(algorithm, self.problem)
        oracle = self.problem.oracle()
        if state is None:
            state, self.counts = first_state(problem, self.problem, algorithm, *start), self.account.of_init(oracle)
            memory = loop.fresh_memory(algorithm, state, self.problem.carried)
        elif any(given is not None for given in start):
            raise ValueError("state says where to go on; leave x0 and y0 out.")
        else:
            (state, memory), self.counts = restored(algorithm, self.problem, state), Counts()
        check_memory(self.problem, self.account, state)
        tic = time.perf_counter()
        self.now = self.problem.put(loop.begin(self.problem, algorithm, self.stream, state, memory))  # traces the step
        self.compile_seconds = time.perf_counter() - tic
        self.inspector, self.doubts, self.told = Inspector(self.problem), Doubts(), ""
        # Where x is kept in a set, its gradient need not vanish: only a look at all data can tell.
        seeming = math.inf if tol > 0 and oracle.project_x is not unconstrained else tol
        self.tol, self.goal = tol, loop.Goal(jnp.asarray(seeming, float), 0)
        self.seconds, self.pace, self.warned, self.inspection_seconds = 0.0, RESPONSE, False, 0.0
        self.sizes = self._sizes()
        self.keeper = Keeper(
            checkpoint_dir,
            lambda: keeping.identity(algorithm, int(seed), sampler, self.problem, (state.x, state.y)),
        )

    @property
    def k(self) -> int:
        return int(self.now.state.k)

    @property
    def norm_v(self) -> float:
        return float(self.now.info.norm_v)

    def restore(self) -> dict[str, Any] | None:
        """Go back to what was saved, if anything was; return the facts that are not the runner's."""
        found = self.keeper.load(self.now, self.doubts)
        if found is None:
            return None
        self.now, facts = self.problem.put(found[0]), found[1]
        self.counts, self.goal = Counts(**facts["counts"]), self.goal._replace(first=facts["next look"])
        self.seconds, self.inspection_seconds = facts["seconds"], facts["inspection seconds"]
        self.warned, self.sizes, self.told = facts["warned"], facts["sizes"], facts["told"]
        self.doubts.texts = [*facts["warnings"], *self.doubts.texts]
        return facts

    def keeps_verdict(self, kept: dict[str, Any]) -> bool:
        return kept["status"] == "converged" and kept["tol"] == self.tol

    def save(self, status: str | None, first: int, measure: Measurements) -> None:
        facts = {
            "status": status,
            "tol": self.tol,
            "first": first,
            "counts": asdict(self.counts),
            "next look": int(self.goal.first),
            "seconds": self.seconds,
            "inspection seconds": self.inspection_seconds,
            "warned": self.warned,
            "sizes": self.sizes,
            "told": self.told,
            "warnings": self.doubts.texts,
            "measured": measure.kept(),
        }
        self.keeper.save(self.now, facts, now=status is not None)

    def reading(self) -> ReadingAhead:
        return ReadingAhead(self.problem, self.algorithm, self.stream, self.now)

    def take(self, now: loop.LoopState, stop: int, warned: bool) -> loop.LoopState:
        return loop.advance(self.problem, self.algorithm, self.stream, self.goal, now, stop, warned)

    def compile(self) -> None:
        """Compile, by taking no steps, and look at eta."""
        tic = time.perf_counter()
        with compiling():
            jax.block_until_ready(self.take(self.now, self.k, False))
        if not self.warned:  # before it was interrupted
            problem = self.problem.carrying(self.now.memory.carried)
            self.warned = eta_warnings.check_start(self.doubts, self.algorithm, problem, self.now.state)
        if self.algorithm.cost(0).JV:
            error = self.inspector.error_of_second_derivatives(self.now.state, self.now.memory.carried)
            diagnosis.check_second_derivatives(self.doubts, error)
        self.compile_seconds += time.perf_counter() - tic

    def advance(self, stop: int) -> bool:
        """Take steps up to ``stop``; tell whether all is finite. If not, this is the last state that was."""
        before, tic = self.now, time.perf_counter()
        after = wait(self.take(before, stop, self.warned), (stop - self.k) * self.pace)
        elapsed = as_the_first_says(time.perf_counter() - tic)
        finite = loop.all_finite(after)
        if finite and after.grew and not self.warned:
            last = self.take(before, int(after.state.k) - 1, True)
            problem = self.problem.carrying(last.memory.carried)
            eta_warnings.warn_series_grows(self.doubts, self.algorithm, problem, last.state, after.info)
            self.warned = True
        if not finite:
            bad = after
            after = loop.advance_while_finite(self.problem, self.algorithm, self.stream, before, int(bad.state.k))
            own = loop.all_finite(bad._replace(memory=bad.memory._replace(carried=None)))
            self.told = diagnosis.CARRIED if own else diagnosis.cause(after.state, bad.state)
        self.now = after
        k = int(before.state.k)
        self.counts += self.account.between(k, self.k) + plain(after.calls)
        self.seconds += elapsed
        self.pace = max(elapsed, 1e-6) / max(1, self.k - k)
        return finite

    def has_converged(self) -> bool:
        """Tell whether what seems to have converged has; if not, half as many steps more pass until the next look."""
        if not self.now.converged:
            return False
        tic = time.perf_counter()
        verdict = self.inspector.verdict(self.now.state, self.now.memory.carried, self.tol)
        self.inspection_seconds += time.perf_counter() - tic
        self.told = str(verdict)
        self.goal = self.goal._replace(first=self.k + max(PATIENCE, self.k // 2))
        return verdict.fulfils(self.tol)

    def judge(self, history: History) -> None:
        """Warn about a result that no one should take for a solution."""
        if not any(diagnosis.check_row(self.doubts, row) for row in history):
            diagnosis.check_end(self.doubts, history, (self.sizes, self._sizes()), self.warned)

    def _sizes(self) -> dict[str, float]:
        # Without JAX: after the second Ctrl-C, it may still be busy with a step.
        return {name: _norm(getattr(self.now.state, name)) for name in ("x", "y")}


def _norm(tree: PyTree) -> float:
    with np.errstate(over="ignore"):
        return math.hypot(*(float(np.linalg.norm(np.asarray(whole(leaf), float))) for leaf in jax.tree.leaves(tree)))
