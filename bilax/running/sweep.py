"""Many settings of one method, with many seeds, with one compilation."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bilax.algorithms.protocol import Algorithm
from bilax.errors import Doubts
from bilax.numerics.memory import bytes_of
from bilax.numerics.platforms import Jitted
from bilax.oracle import Oracle, Traced, TracedProblem
from bilax.phase import compiling
from bilax.problem import Problem
from bilax.results import Iterates
from bilax.running import devices, loop
from bilax.running.accounting import Account
from bilax.running.checks import (
    check_algorithm,
    check_arguments,
    check_memory,
    check_progress,
    check_state,
    checked_steps,
    starting_point,
)
from bilax.running.diagnosis import check_iterates
from bilax.running.iterate import recorded
from bilax.running.progress import bar
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.sampling.stored import bytes_per_sample
from bilax.types import PyTree

M = TypeVar("M")

LANES = 8  # settings side by side, at most: more push each other out of the cache
SPLIT = 4  # and at least, if there are as many: what fewer would lose in sharing is not worth another core
SHARED = 0.1  # times the bytes of a state, at least, that the batches of a step must have: they are what lanes share


def sweep(
    problem: Problem | Oracle,
    algorithms: Sequence[Algorithm],
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seeds: Sequence[int] = (0,),
    sampler: str | Sampler = "iid",
    progress: bool | None = None,
    mesh: Mesh | None = None,
) -> Iterates:
    """Run every setting with every seed, with one compilation.

    Settings share the batches of a seed, so groups of them run side by side (`jax.vmap`), unless their states are much
    larger than the batches. Groups and seeds share nothing: on a CPU every core takes one at a time.

    Args:
      problem: what to solve.
      algorithms: settings of one method; they may differ in real numbers (step sizes, momentum, eta).
      x0: where x starts; by default where the problem says.
      y0: where y starts, likewise.
      steps: iterations of each.
      seeds: decide the batches, as in `solve`.
      sampler: as in `solve`.
      progress: show a bar; by default if standard error is a terminal.
      mesh: devices that share every run, as in `solve`; runs come one after the other then.

    Returns:
      The last states, the `Info` of every step and how each run ended, like `iterate`, whose iterates they are up to
      rounding. Every array has two more axes in front: setting and seed.

    >>> import jax.numpy as jnp
    >>> from bilax.algorithms import MRBO
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> settings = [MRBO(gamma=gamma, lam=0.5, S=5) for gamma in (0.01, 0.1, 1.0)]
    >>> found = sweep(problem, settings, jnp.zeros(()), jnp.zeros(()), steps=50, seeds=[0, 1])
    >>> found.state.x.shape, found.info.norm_v.shape, found.status.names[0].tolist()
    ((3, 2), (3, 2, 50), ['done', 'done'])
    """
    check_progress(progress)
    settings = one_program(algorithms)
    for setting in settings:
        check_arguments(problem, setting)
    steps, _ = checked_steps(steps, None)
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds must be a list of integers, like seeds=[0]; got {seeds!r}.")
    chosen = [np.uint32(keys.checked_seed(seed)) for seed in seeds]
    if not chosen:
        raise ValueError("seeds is empty; give at least one, like seeds=[0].")
    parts, (x0, y0) = devices.prepared(problem, sampler, mesh, settings[0], (x0, y0), None)
    x0, y0 = starting_point(problem, x0, y0)
    lanes = _lanes(parts, settings[0], x0, y0, len(settings))
    _check_memory(parts, settings[0], x0, y0, steps, len(settings) * len(chosen))
    groups = [jax.tree.map(lambda *leaves: np.array(leaves, float), *group) for group in groups_of(lanes, settings)]
    tasks = [(seed, group) for group in groups for seed in chosen]
    results = []
    with bar(f"{type(settings[0]).__name__}, {len(settings)} x {len(chosen)}", progress) as update:
        cores = None if mesh is None else 1
        for result in on_every_core(_program, (steps,), (parts, x0, y0), tasks, cores):
            results.append(result)
            update(len(results) / len(tasks), f"{len(results)} of {len(tasks)} groups")

    def in_order(*leaves: jax.Array) -> jax.Array:
        of_seeds = np.reshape(leaves, (len(groups), len(chosen), *leaves[0].shape))
        return jnp.asarray(np.concatenate([np.swapaxes(of_group, 0, 1) for of_group in of_seeds])[: len(settings)])

    found = jax.tree.map(in_order, *results)
    check_iterates(Doubts(), found.info, found.status)
    return found


def one_program(algorithms: Sequence[Algorithm]) -> list[Any]:
    """Return the settings as a list, if one compiled program can run them all."""
    if isinstance(algorithms, str) or not (hasattr(algorithms, "step") or isinstance(algorithms, Iterable)):
        raise TypeError(f"algorithms must be a list of settings, like [bilax.MRBO()]; got {algorithms!r}.")
    settings = [algorithms] if hasattr(algorithms, "step") else list(algorithms)
    for setting in settings:
        check_algorithm(setting)
    if not settings:
        raise ValueError("there are no settings to run; give at least one, like [bilax.MRBO()].")
    if len({jax.tree.structure(setting) for setting in settings}) > 1:
        raise ValueError(
            "the settings may differ in real numbers only (step sizes, momentum, eta), because they run as one "
            "program; methods, whole numbers, batch sizes and eta='auto' need one call each."
        )
    return settings


def on_every_core(
    program: Any, static: tuple, given: PyTree, tasks: Sequence[tuple], cores: int | None = None
) -> Iterator[Any]:
    """Yield ``program(*static, *given, *task)`` of each task, in order. Every core of a CPU takes one at a time.

    Threads are enough, because a jitted program runs outside Python. It is compiled before they start, once, and where
    settings of JAX that belong to a thread (`jax.enable_x64`) are the caller's.
    """
    given, tasks = jax.tree.map(jnp.asarray, (given, tasks))
    with compiling():
        compiled = program.lower(*static, *given, *tasks[0]).compile()
    pool = ThreadPoolExecutor(cores or _cores())
    try:
        for future in [pool.submit(lambda task: jax.block_until_ready(compiled(*given, *task)), t) for t in tasks]:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, what runs is not waited for


def _cores() -> int:
    """Return how many programs run at the same time; an accelerator takes one after the other."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lanes(problem: Traced, algorithm: Algorithm, x0: PyTree, y0: PyTree, settings: int) -> int:
    """Return how many settings run side by side: groups of equal size, as few as keep every core busy."""
    oracle = problem.oracle()
    state = jax.eval_shape(lambda x0, y0: algorithm.init(oracle, x0, y0), x0, y0)
    check_state(algorithm, state)
    if isinstance(problem, TracedProblem):
        one = bytes_per_sample(problem.inner_data)
        if Account(algorithm, problem).samples_per_step * one < SHARED * bytes_of(state):
            return 1
    if not jax.tree.leaves(algorithm):
        return 1
    fewest = math.ceil(settings / LANES)
    even = math.ceil(fewest / _cores()) * _cores()
    return math.ceil(settings / max(fewest, min(even, settings // SPLIT)))


def _check_memory(problem: Traced, algorithm: Algorithm, x0: PyTree, y0: PyTree, steps: int, runs: int) -> None:
    state = jax.eval_shape(lambda x0, y0: algorithm.init(problem.oracle(), x0, y0), x0, y0)
    memory = jax.eval_shape(lambda s: loop.fresh_memory(algorithm, s, problem.carried), state)
    told = jax.eval_shape(lambda s, m: loop.begin(problem, algorithm, keys.root(0), s, m).info, state, memory)
    # What is told stands in memory twice when the groups are put in order.
    check_memory(problem, Account(algorithm, problem), state, runs=runs, kept=2 * runs * steps * bytes_of(told))


def groups_of(lanes: int, members: Sequence[M]) -> Iterator[list[M]]:
    """Yield groups of equal size; the last one is filled up with its last member again."""
    for first in range(0, len(members), lanes):
        group = list(members[first : first + lanes])
        yield group + group[-1:] * (lanes - len(group))


@partial(Jitted, static_argnums=0)
def _program(steps: int, problem: Traced, x0: PyTree, y0: PyTree, seed: jax.Array, group: Any) -> Iterates:
    stream, oracle = keys.root(seed), problem.oracle()

    def one(algorithm: Algorithm) -> Iterates:
        return recorded(problem, algorithm, stream, algorithm.init(oracle, x0, y0), steps)

    numbers = jax.tree.leaves(group)
    if not numbers:  # a method without real hyper-parameters has one setting
        return jax.tree.map(lambda leaf: leaf[None], one(group))
    return jax.vmap(one)(group) if numbers[0].shape[0] > 1 else jax.lax.map(one, group)
