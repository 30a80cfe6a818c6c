"""A state that a run can go on from: the method's own, and what the loop carries beside it."""

from typing import Any

import jax
import jax.numpy as jnp

from bilax.algorithms.protocol import Algorithm
from bilax.oracle import Traced
from bilax.running.checks import check_state
from bilax.running.loop import Memory, fresh_memory
from bilax.storage.trees import without_memory


def restored(algorithm: Algorithm, problem: Traced, state: Any) -> tuple[Any, Memory]:
    """Return the method's state and the loop's memory out of ``result.state``, or refuse another method's state."""
    check_state(algorithm, state)
    oracle = problem.oracle()
    state, memory = without_memory(state)
    expected = jax.eval_shape(lambda x, y: algorithm.init(oracle, x, y), state.x, state.y)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (expected, state)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"this state is not one of {type(algorithm).__name__} with these settings; go on with the algorithm, the "
            "optimisers and the problem that it comes from."
        )
    fresh = fresh_memory(algorithm, state, problem.carried)
    if memory is None:
        return state, fresh
    shapes = [jax.tree.map(jnp.shape, one.carried) for one in (fresh, memory)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"this state carries {shapes[1]}, and the problem {shapes[0]}; go on with the problem that it comes from."
        )
    # The run before may have had a number for eta and this one "auto", or the other way round.
    changed = (memory.curvature is None) != (fresh.curvature is None)
    return state, memory._replace(curvature=fresh.curvature) if changed else memory
