"""Many settings of one method, with many seeds, with one compilation."""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bilax import keys, loop
from bilax.algorithms.protocol import Algorithm, Info
from bilax.oracle import from_parts
from bilax.problem import Functions, Problem
from bilax.progress import bar
from bilax.runner import check_arguments, checked_seed, checked_steps, samples_per_step, starting_point
from bilax.sampler import Sampler, resolve
from bilax.types import PyTree

M = TypeVar("M")

LANES = 8  # settings side by side, at most: more push each other out of the cache
SPLIT = 4  # and at least, if there are as many: what fewer would lose in sharing is not worth another core
SHARED = 0.1  # times the bytes of a state, at least, that the batches of a step must have: they are what lanes share


def sweep(
    problem: Problem,
    algorithms: Sequence[Algorithm],
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seeds: Sequence[int] = (0,),
    sampler: str | Sampler = "iid",
    progress: bool | None = None,
) -> tuple[Any, Info]:
    """Run every setting with every seed, with one compilation.

    Settings share the batches of a seed, so groups of them run side by side (`jax.vmap`), unless their states are much
    larger than the batches. Groups and seeds share nothing: on a CPU every core takes one at a time.

    Args:
      problem: what to solve.
      algorithms: settings of one method; they may differ in real numbers (step sizes, momentum, eta).
      x0, y0: where to start; by default what the problem says.
      steps: iterations of each.
      seeds: decide the batches, as in `solve`.
      sampler: as in `solve`.
      progress: show a bar; by default if standard error is a terminal.

    Returns:
      The last states and the `Info` of every step, like `iterate`, whose iterates they are up to rounding. Every array
      has two more axes in front: setting and seed.

    >>> import jax.numpy as jnp
    >>> from bilax.algorithms import MRBO
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> settings = [MRBO(gamma=gamma, lam=0.5, S=5) for gamma in (0.01, 0.1, 1.0)]
    >>> states, infos = sweep(problem, settings, jnp.zeros(()), jnp.zeros(()), steps=50, seeds=[0, 1])
    >>> states.x.shape, infos.norm_v.shape
    ((3, 2), (3, 2, 50))
    """
    settings = one_program(algorithms)
    for setting in settings:
        check_arguments(problem, setting)
    steps, _ = checked_steps(steps, None)
    chosen = [np.uint32(checked_seed(seed)) for seed in seeds]
    if not chosen:
        raise ValueError("seeds is empty; give at least one, like seeds=[0].")
    sampler = resolve(sampler)
    x0, y0 = starting_point(problem, x0, y0)
    lanes = _lanes(problem, settings[0], sampler, x0, y0, len(settings))
    groups = [jax.tree.map(lambda *leaves: np.array(leaves, float), *group) for group in groups_of(lanes, settings)]
    tasks = [(seed, group) for group in groups for seed in chosen]
    static, given = (problem.functions, sampler, steps), (problem.outer_data, problem.inner_data, x0, y0)
    results = []
    with bar(f"{type(settings[0]).__name__}, {len(settings)} x {len(chosen)}", progress) as update:
        for result in on_every_core(_program, static, given, tasks):
            results.append(result)
            update(len(results) / len(tasks), f"{len(results)} of {len(tasks)} groups")

    def in_order(*leaves: jax.Array) -> jax.Array:
        of_seeds = np.reshape(leaves, (len(groups), len(chosen), *leaves[0].shape))
        return jnp.asarray(np.concatenate([np.swapaxes(of_group, 0, 1) for of_group in of_seeds])[: len(settings)])

    return jax.tree.map(in_order, *results)


def one_program(algorithms: Sequence[Algorithm]) -> list[Any]:
    """Return the settings as a list, if one compiled program can run them all."""
    settings = [algorithms] if hasattr(algorithms, "step") else list(algorithms)
    if not settings:
        raise ValueError("there are no settings to run; give at least one, like [bilax.MRBO()].")
    if len({jax.tree.structure(setting) for setting in settings}) > 1:
        raise ValueError(
            "the settings may differ in real numbers only (step sizes, momentum, eta), because they run as one "
            "program; methods, whole numbers, batch sizes and eta='auto' need one call each."
        )
    return settings


def on_every_core(program: Any, static: tuple, given: PyTree, tasks: Sequence[tuple]) -> Iterator[Any]:
    """Yield ``program(*static, *given, *task)`` of each task, in order. Every core of a CPU takes one at a time.

    Threads are enough, because a jitted program runs outside Python. It is compiled before they start, once, and where
    settings of JAX that belong to a thread (`jax.enable_x64`) are the caller's.
    """
    given, tasks = jax.tree.map(jnp.asarray, (given, tasks))
    compiled = program.lower(*static, *given, *tasks[0]).compile()
    pool = ThreadPoolExecutor(_cores())
    try:
        for future in [pool.submit(lambda task: jax.block_until_ready(compiled(*given, *task)), t) for t in tasks]:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many programs run at the same time; an accelerator takes one after the other."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lanes(problem: Problem, algorithm: Algorithm, sampler: Sampler, x0: PyTree, y0: PyTree, settings: int) -> int:
    """Return how many settings run side by side: groups of equal size, as few as keep every core busy."""
    state = jax.eval_shape(algorithm.init, x0, y0)
    batches = samples_per_step(algorithm, problem, sampler) * _bytes(problem.inner_data) / problem.inner_size
    if batches < SHARED * _bytes(state):
        return 1
    fewest = math.ceil(settings / LANES)
    even = math.ceil(fewest / _cores()) * _cores()
    return math.ceil(settings / max(fewest, min(even, settings // SPLIT)))


def _bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def groups_of(lanes: int, members: Sequence[M]) -> Iterator[list[M]]:
    """Yield groups of equal size; the last one is filled up with its last member again."""
    for first in range(0, len(members), lanes):
        group = list(members[first : first + lanes])
        yield group + group[-1:] * (lanes - len(group))


@partial(loop.jit, static_argnums=(0, 1, 2))
def _program(
    functions: Functions,
    sampler: Sampler,
    steps: int,
    outer_data: PyTree,
    inner_data: PyTree,
    x0: PyTree,
    y0: PyTree,
    seed: jax.Array,
    group: Any,
) -> tuple[Any, Info]:
    oracle, stream = from_parts(functions, outer_data, inner_data, sampler), keys.root(seed)

    def run(algorithm: Algorithm) -> tuple[Any, Info]:
        return loop.iterations(oracle, algorithm, stream, algorithm.init(x0, y0), steps)

    lanes = jax.tree.leaves(group)[0].shape[0]
    return jax.vmap(run)(group) if lanes > 1 else jax.lax.map(run, group)
