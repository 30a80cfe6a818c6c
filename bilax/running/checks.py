"""Arguments that cannot work are refused before anything is compiled, with what was given and what is allowed."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.algorithms.protocol import Algorithm
from bilax.given import as_variable
from bilax.numerics.memory import bytes_of, refuse_if_too_large
from bilax.numerics.signatures import check_function
from bilax.oracle import Oracle, Traced, TracedProblem, like, traced
from bilax.problem import Problem, check_metrics, is_function
from bilax.running.accounting import Account
from bilax.sampling.samplers import full
from bilax.sampling.stored import bytes_per_sample
from bilax.types import PyTree


def check_arguments(problem: Any, algorithm: Any) -> None:
    traced(problem, "iid")  # refuses what is no problem
    check_algorithm(algorithm)
    given = jax.tree.leaves((algorithm, getattr(problem, "inner_data", ())))
    if any(isinstance(leaf, Tracer) for leaf in (*given, jnp.zeros(()) + 0)):
        raise TypeError(
            "solve and sweep drive a run from outside, with a clock and measurements, so they cannot be called inside "
            "jax.jit, jax.vmap or jax.grad; bilax.iterate can."
        )
    check_single(algorithm, "solve takes one setting at a time. For a grid, give a list of settings to bilax.sweep")


def check_single(algorithm: Any, remedy: str) -> None:
    for path, leaf in jax.tree.leaves_with_path(algorithm):
        if np.ndim(leaf) != 0:
            name = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(f"{type(algorithm).__name__}: {name} has the shape {np.shape(leaf)}; {remedy}.")


def check_options(metrics: Any, on_row: Any, progress: Any, stop: Any) -> None:
    if metrics is not None:
        check_metrics(metrics)
    if on_row is not None:
        check_function("on_row", on_row, 1, "a function of a row (a dictionary)")
    if stop is not None:
        check_function("stop", stop, 1, "a function of the history that returns True where the run should end")
    check_progress(progress)


def check_progress(progress: Any) -> None:
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress must be True, False or None; got {progress!r}.")


def check_algorithm(algorithm: Any) -> None:
    if isinstance(algorithm, type):
        raise TypeError(f"algorithm must be an instance: write {algorithm.__name__}() with its hyper-parameters.")
    if not all(callable(getattr(algorithm, name, None)) for name in ("init", "step", "cost")):
        raise TypeError(
            f"algorithm must have init, step and cost, like bilax.MRBO() or bilax.ALGORITHMS['mrbo'](); "
            f"got {algorithm!r}."
        )
    if jax.tree_util.all_leaves([algorithm]):
        name = type(algorithm).__name__
        raise TypeError(
            f"{name} is not a pytree, so it cannot be part of a compiled program: decorate the class with "
            "bilax.hyperparameters.hyperparameters, or with jax.tree_util.register_dataclass over a frozen dataclass."
        )


def check_state(algorithm: Any, state: Any) -> None:
    missing = [name for name in ("k", "x", "y") if name not in getattr(state, "_fields", ())]
    if missing:
        raise TypeError(
            f"the state of {type(algorithm).__name__} must be a NamedTuple with k, x and y, among others; "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing from {type(state).__name__}. "
            "To go on, give result.state of an earlier call."
        )
    k = jax.eval_shape(jnp.asarray, state.k)
    if k.shape != () or not jnp.issubdtype(k.dtype, jnp.integer):
        raise TypeError(
            f"{type(algorithm).__name__}: k must be one int32 number, at first jnp.zeros((), jnp.int32); "
            f"got {state.k!r}."
        )


def starting_point(problem: Problem | Oracle, x0: PyTree, y0: PyTree) -> tuple[PyTree, PyTree]:
    """Return where to start: in the sets that x and y are kept in, if there are any."""
    x0 = as_variable("x0", getattr(problem, "x0", None) if x0 is None else x0)
    y0 = getattr(problem, "y0", None) if y0 is None else y0
    y0 = as_variable("y0", y0(x0) if is_function(y0) else y0)
    project_x, project_y = (like(name, getattr(problem, name)) for name in ("project_x", "project_y"))
    return project_x(x0), project_y(y0)


def first_state(problem: Problem | Oracle, parts: Traced, algorithm: Algorithm, x0: PyTree, y0: PyTree) -> Any:
    start = starting_point(problem, x0, y0)
    # One of ours that calls oracles is compiled, and once; what a user may still be changing is run as it is.
    calls = hasattr(algorithm, "init_cost") and type(algorithm).__module__.startswith("bilax.algorithms.")
    state = _init(parts, algorithm, *start) if calls else algorithm.init(parts.oracle(), *start)
    check_state(algorithm, state)
    return state


@jax.jit
def _init(parts: Traced, algorithm: Algorithm, x0: PyTree, y0: PyTree) -> Any:
    return algorithm.init(parts.oracle(), x0, y0)


def check_memory(problem: Traced, account: Account, state: Any, *, runs: int = 1, kept: int = 0) -> None:
    """Refuse what cannot fit: the states before and after a step, its batches, and ``kept`` bytes of what is told."""
    batches = 0
    if isinstance(problem, TracedProblem) and not math.isnan(account.samples_per_step):
        drawn = 0 if problem.sampler is full else account.samples_per_step
        batches = int(drawn * bytes_per_sample(problem.inner_data))
    parts = {"states": 2 * runs * bytes_of(state), "batches": runs * batches, "what every step tells": kept}
    refuse_if_too_large("this run", parts, "Take smaller batches, fewer steps at a time, or smaller x and y.")


def checked_steps(steps: Any, every: Any) -> tuple[int, int]:
    if isinstance(steps, Tracer):
        raise TypeError("steps must be known when the program is compiled (static): mark it with static_argnums.")
    if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be an integer >= 1; got {steps!r}.")
    if steps >= 2**31:
        raise ValueError(f"steps must be an integer from 1 to 2147483647; got {steps!r}.")
    if every is None:
        every = max(1, math.ceil(steps / 20))
    if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
        raise ValueError(f"every (iterations from one measurement to the next) must be an integer >= 1; got {every!r}.")
    return int(steps), int(every)


def positive(name: str, value: Any) -> float:
    """Return a number above 0, or infinity for None."""
    if value is None:
        return math.inf
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number > 0:
        raise ValueError(f"{name} must be a number > 0; got {value!r}.")
    return number
