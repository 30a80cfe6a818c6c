"""A run as one pure function."""

from typing import Any

import jax
import jax.numpy as jnp

from bilax.algorithms.protocol import Algorithm, Info
from bilax.errors import Doubts
from bilax.numerics.memory import bytes_of
from bilax.oracle import Oracle, Traced, traced
from bilax.problem import Problem
from bilax.results import Iterates, Outcome
from bilax.running import loop
from bilax.running.accounting import Account
from bilax.running.checks import check_algorithm, check_memory, check_single, checked_steps, first_state
from bilax.running.diagnosis import check_iterates
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.storage.trees import with_memory
from bilax.types import PyTree, Scalar


def iterate(
    problem: Problem | Oracle,
    algorithm: Algorithm,
    x0: PyTree = None,
    y0: PyTree = None,
    *,
    steps: int,
    seed: Scalar = 0,
    sampler: str | Sampler = "iid",
) -> Iterates:
    """Run ``steps`` iterations as one pure function: to be jitted, differentiated, or vmapped over hyper-parameters.

    Args:
      problem: what to solve; an `Oracle` of your own will do, too.
      algorithm: with which method and hyper-parameters.
      x0: where x starts; by default where the problem says.
      y0: where y starts, likewise.
      steps: iterations of the algorithm.
      seed: decides every batch; it may be traced.
      sampler: as in `solve`.

    Returns:
      `Iterates`: the last state, the `Info` of every step, stacked, and how it ended: ``status.names`` says "diverged"
      if numbers were met that are not finite. The iterates are those of `solve`.

    >>> import jax, jax.numpy as jnp
    >>> from bilax.algorithms import MRBO
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> def run(gamma):
    ...     return iterate(problem, MRBO(gamma=gamma), jnp.zeros(()), jnp.zeros(()), steps=50)
    >>> found = jax.vmap(run)(jnp.array([0.01, 0.1, 1e30]))
    >>> found.state.x.shape, found.status.names.tolist()
    ((3,), ['done', 'done', 'diverged'])
    """
    steps, _ = checked_steps(steps, None)
    parts = traced(problem, sampler)
    check_algorithm(algorithm)
    check_single(algorithm, "iterate takes one setting at a time: use jax.vmap over a function of it, or bilax.sweep")
    state = first_state(problem, parts, algorithm, x0, y0)
    stream = keys.root(seed if isinstance(seed, jax.Array) else keys.checked_seed(seed))
    told = loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state, parts.carried)).info
    check_memory(parts, Account(algorithm, parts), state, kept=steps * bytes_of(told))
    found = recorded(parts, algorithm, stream, state, steps)
    check_iterates(Doubts(), found.info, found.status)
    return found


def recorded(problem: Traced, algorithm: Algorithm, stream: jax.Array, state: Any, steps: int) -> Iterates:
    state, memory, info, _ = loop.record(problem, algorithm, stream, state, steps)
    told = outcome((state, memory.carried), info)
    return Iterates(state if memory.carried is None else with_memory(state, memory), info, told)


def outcome(state: Any, info: Info) -> Outcome:
    """Return how a recorded run ended."""
    finite = loop.is_finite(info)
    before = jnp.where(finite.all(), finite.size, jnp.argmin(finite))
    return Outcome((~(finite.all() & loop.state_is_finite(state))).astype(jnp.int32), before.astype(jnp.int32))
