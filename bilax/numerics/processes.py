"""Several processes that take the same steps: what they must agree on, and arrays that none of them holds alone.

With one process, everything here is what it would be without it.
"""

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax.types import PyTree

SOME = 100_000  # numbers of each array that are compared
SILENCE = 20  # seconds after which a process that says nothing counts as dead
LAUNCHED = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")  # by srun, mpirun, hand
LOST = ("Gloo", "coordination service", "UNAVAILABLE", "NCCL", "peer")  # in what JAX says when one does not answer


def join() -> int:
    """Become one of several processes, if a launcher started them; return how many there are.

    JAX finds the others by what SLURM, Open MPI and machines with TPUs say; otherwise JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID do.
    """
    machines = 1 + os.environ.get("TPU_WORKER_HOSTNAMES", "").count(",")
    count = max(machines, *map(_number, LAUNCHED))
    if count == 1:
        return 1
    named: dict[str, Any] = {}
    if os.environ.get("JAX_NUM_PROCESSES"):
        missing = [name for name in ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID") if not os.environ.get(name)]
        if missing:
            raise ValueError(
                f"JAX_NUM_PROCESSES is set, and {' and '.join(missing)} not; each process needs all three: the address "
                "of the first process (as 127.0.0.1:8476), how many there are, and its own number, from 0 on."
            )
        count = _number("JAX_NUM_PROCESSES")
        named = {"num_processes": count, "process_id": _number("JAX_PROCESS_ID")}
    jax.distributed.initialize(**named, heartbeat_timeout_seconds=SILENCE, shutdown_timeout_seconds=SILENCE)
    return count


def _number(name: str) -> int:
    given = os.environ.get(name) or "1"
    if not given.isdecimal():
        raise ValueError(f"{name}={given!r}: a whole number is needed.")
    return int(given)


@contextmanager
def noticing_the_lost(folder: str | Path | None) -> Iterator[None]:
    """Say it plainly when another process does not answer any more."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or not any(word in str(error) for word in LOST):
            raise
        ways = (
            f"start all of them again, and the run goes on from {folder}."
            if folder is not None
            else "the run is lost; with checkpoint_dir it could go on."
        )
        raise ConnectionError(
            f"another process of this run has ended, or cannot be reached: {ways} (process {jax.process_index()} of "
            f"{jax.process_count()} was told: {str(error).splitlines()[0]})"
        ) from error


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


def bytes_of_the_first(held: bytes | None) -> bytes | None:
    """Return the bytes that the first process has; None if it has none."""
    if jax.process_count() == 1:
        return held
    from jax.experimental import multihost_utils

    length = int(as_the_first_says(-1 if held is None else len(held)))
    if length < 0:
        return None
    own = np.frombuffer(held, np.uint8) if is_first() and held is not None else np.zeros(length, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(own), np.uint8).tobytes()


def if_any(flag: bool) -> bool:
    """Tell whether it is so in any process."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def all_see(folder: Path) -> bool:
    """Tell whether several processes, no fewer, have a folder in common."""
    if jax.process_count() == 1:
        return False
    token = folder / f".seen-{as_the_first_says(time.time_ns())}.part"
    if is_first():
        token.touch()
    as_the_first_says(0)  # now it is there
    seen = not if_any(not token.exists())
    if is_first():
        token.unlink(missing_ok=True)
    return seen


def refuse_different(tree: PyTree) -> None:
    """Say so if processes give different arrays where each should give the whole."""
    if jax.process_count() == 1:
        return
    own = [leaf for leaf in jax.tree.leaves(tree) if leaf.is_fully_addressable]
    some = (np.asarray(leaf.reshape(-1)[:: max(1, leaf.size // SOME)]).tobytes() for leaf in own)
    told = zlib.crc32(repr([leaf.shape for leaf in own]).encode() + b"".join(some))
    if if_any(as_the_first_says(told) != told):
        raise ValueError(
            "the processes were given different data. Each gives all of the data, or its own rows by "
            "jax.make_array_from_process_local_data."
        )


def gathered(tree: PyTree) -> PyTree:
    """Return all arrays of a tree whole."""
    return jax.tree.map(whole, tree)
