"""A state that a run can go on from: the method's own, and what the loop carries beside it."""

from collections import namedtuple
from functools import cache
from typing import Any

import jax

from bilax.algorithms.protocol import Algorithm
from bilax.oracle import Oracle
from bilax.running.checks import check_state
from bilax.running.loop import Memory, fresh_memory


def restored(algorithm: Algorithm, oracle: Oracle, state: Any) -> tuple[Any, Memory]:
    """Return the method's state and the loop's memory out of ``result.state``, or refuse another method's state."""
    check_state(algorithm, state)
    state, memory = without_memory(state)
    expected = jax.eval_shape(lambda x, y: algorithm.init(oracle, x, y), state.x, state.y)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (expected, state)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"this state is not one of {type(algorithm).__name__} with these settings; go on with the algorithm, the "
            "optimisers and the problem that it comes from."
        )
    fresh = fresh_memory(algorithm, state)
    if memory is None:
        return state, fresh
    # The run before may have had a number for eta and this one "auto", or the other way round.
    changed = (memory.curvature is None) != (fresh.curvature is None)
    return state, memory._replace(curvature=fresh.curvature) if changed else memory


def with_memory(state: Any, memory: Memory) -> Any:
    """Return a method's state with one more field, ``memory``: what the loop needs to go on from it."""
    return _with_memory(type(state))(*state, memory)


def without_memory(state: Any) -> tuple[Any, Memory | None]:
    kind = getattr(type(state), "method_state", None)
    return (state, None) if kind is None else (kind(*state[:-1]), state.memory)


@cache
def _with_memory(kind: type) -> type:
    made = namedtuple(kind.__name__, (*kind._fields, "memory"))  # type: ignore[attr-defined, misc]
    made.method_state = kind  # type: ignore[attr-defined]
    made.__reduce__ = lambda self: (with_memory, (kind(*self[:-1]), self.memory))  # for pickle
    return made
