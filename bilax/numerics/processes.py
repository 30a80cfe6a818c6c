"""Several processes that take the same steps: what they must agree on, and arrays that none of them holds alone.

With one process, everything here is what it would be without it.
"""

from typing import Any

import jax
import numpy as np

from bilax.types import PyTree


def is_first() -> bool:
    """Tell whether this is the process that writes files and shows what goes on."""
    return jax.process_index() == 0


def put(leaf: Any, sharding: Any) -> jax.Array:
    """Return an array that is laid out so; all processes give the same one."""
    if sharding.is_fully_addressable or (isinstance(leaf, jax.Array) and not leaf.is_fully_addressable):
        return jax.device_put(leaf, sharding)
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = put(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    rows = np.asarray(leaf)
    return jax.make_array_from_callback(rows.shape, sharding, lambda at: rows[at])


def whole(leaf: Any) -> Any:
    """Return an array that every process holds all of."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(leaf, tiled=True)


def as_the_first_says(value: float) -> float:
    """Return the number that the first process gives: a clock, or what was decided by one."""
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    # As bytes, because JAX would round a number of 64 bits.
    told = multihost_utils.broadcast_one_to_all(np.frombuffer(np.float64(value).tobytes(), np.uint8))
    return float(np.frombuffer(np.asarray(told, np.uint8).tobytes(), np.float64)[0])


def if_any(flag: bool) -> bool:
    """Tell whether it is so in any process."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def gathered(tree: PyTree) -> PyTree:
    """Return all arrays of a tree whole."""
    return jax.tree.map(whole, tree)
