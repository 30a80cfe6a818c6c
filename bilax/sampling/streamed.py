"""Samples of a source: a compiled program asks for them by their numbers, and they are read.

Memory-mapped files that fit into memory are handed to the program as they are, without a copy: the system keeps what
was read in its cache, and a step takes as long as with arrays. All else is read by calls from within the program.
"""

import copy
import threading
import time
from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.numerics.memory import available_bytes, bytes_of
from bilax.sampling.stored import Stored
from bilax.sources import Arrays, Source
from bilax.types import PyTree

MOST = 2**24  # bytes that are read ahead, of each source
SHARE = 0.5  # of the memory there is to spare: files up to that size stay in the system's cache
TRIED = 200  # samples that are read to see how long it takes
ALIGNED = 64  # bytes; the compiler expects its arrays there


class Ahead:
    """Batches that were read before they are asked for; as long as it is open."""

    def __init__(self):
        self._changed = threading.Condition()
        self._kept: dict[bytes, tuple[int, PyTree]] = {}
        self._met: deque[int] = deque(maxlen=1000)  # what was asked for before it was read
        self._open = False

    def open(self) -> None:
        with self._changed:
            self._open = True

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._kept.clear()
            self._met.clear()
            self._changed.notify_all()

    def get(self, numbers: np.ndarray) -> PyTree | None:
        """Return what was read; forget what steps before asked for, or were thought to."""
        if not self._open:
            return None
        with self._changed:
            found = self._kept.get(numbers.tobytes())
            if found is None:
                self._met.append(hash(numbers.tobytes()))
                return None
            k, batch = found
            del self._kept[numbers.tobytes()]
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] >= k}
            self._changed.notify_all()
            return batch

    def wants(self, numbers: np.ndarray, size: int) -> bool:
        """Wait until there is room for a batch; tell whether it is still wanted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or (len(self._kept) + 1) * size <= MOST or not self._kept)
            return self._open and hash(numbers.tobytes()) not in self._met

    def put(self, k: int, numbers: np.ndarray, batch: PyTree) -> None:
        with self._changed:
            if self._open:
                self._kept[numbers.tobytes()] = k, batch


@jax.tree_util.register_pytree_node_class
class Streamed(Stored):
    """A source as data of a level; in a compiled program it is a constant, but for files that are mapped into memory.

    >>> from bilax.sources import Arrays
    >>> data = Streamed("inner_data", Arrays(np.arange(10.0)))
    >>> data.take(jnp.array([3, 1])).tolist()
    [3.0, 1.0]
    """

    def __init__(self, name: str, source: Source):
        self.name, self.source, self.samples = name, source, len(source)
        if self.samples < 1:
            raise ValueError(f"{name} is a source without samples.")
        if self.samples >= 2**31:
            raise ValueError(
                f"{name} has {self.samples:,} samples; at most 2**31 - 1 can be numbered. Give a part of them."
            )
        self.failure: Exception | None = None
        self.ahead = Ahead()
        self._one_at_a_time = threading.Lock()
        first = source.take(np.zeros(1, np.int64))
        if not jax.tree.leaves(first):
            raise ValueError(f"{name} is a source whose take returned no arrays, but {first!r}.")
        self._row = jax.tree.map(lambda leaf: _row(name, leaf), first)
        self._read(np.arange(min(2, self.samples)))  # refuses what does not give one row per number
        self.mapped, self._original = as_mapped(source), self

    @property
    def bytes_per_sample(self) -> float:
        return bytes_of(self._row)

    def take(self, numbers: jax.Array) -> PyTree:
        if self.mapped is not None:
            return jax.tree.map(lambda leaf: leaf.at[numbers].get(mode="promise_in_bounds"), self.mapped)
        return jax.pure_callback(self._asked, self.shapes(numbers.shape), numbers, vmap_method="expand_dims")

    def shapes(self, numbers: tuple[int, ...]) -> PyTree:
        """Return what samples of numbers of this shape look like."""
        return jax.tree.map(lambda row: jax.ShapeDtypeStruct(numbers + row.shape, row.dtype), self._row)

    def everything(self) -> PyTree:
        raise ValueError(
            f"{self.name} is a source, so that its samples stay on disk; sampler='full' would take them all at once. "
            "Draw batches (sampler='iid' or 'epoch'), or give arrays."
        )

    def some(self, most: int) -> PyTree:
        """Return samples at equal distances, not from within a compiled program."""
        return self._read(np.linspace(0, self.samples - 1, min(most, self.samples)).astype(np.int64))

    def tree_flatten(self) -> tuple[tuple, "Streamed"]:
        return (self.mapped,), self._original

    @classmethod
    def tree_unflatten(cls, original: "Streamed", children: tuple) -> "Streamed":
        if children[0] is None:
            return original
        within = copy.copy(original)
        within.mapped = children[0]
        return within

    def __repr__(self) -> str:
        return f"Streamed({type(self.source).__name__}, {self.samples:,} samples)"

    def _asked(self, numbers: Any) -> PyTree:
        try:
            numbers = np.asarray(numbers)
            found = self.ahead.get(numbers)
            return self._read(numbers) if found is None else found
        except Exception as error:
            self.failure = error  # JAX would tell it as an error of its own
            raise

    def read_ahead(self, k: int, numbers: np.ndarray) -> None:
        """Read what step k will ask for, when there is room for it."""
        if self.ahead.wants(numbers, int(numbers.size * self.bytes_per_sample)):
            self.ahead.put(k, numbers, self._read(numbers))

    def seconds_per_sample(self) -> float:
        """Return how long it takes to read one, by reading some."""
        some = np.random.default_rng(0).integers(0, self.samples, TRIED)
        began = time.perf_counter()
        self._read(some)
        return (time.perf_counter() - began) / TRIED

    def _read(self, numbers: np.ndarray) -> PyTree:
        with self._one_at_a_time:
            batch = self.source.take(numbers.reshape(-1).astype(np.int64, copy=False))

        def fitting(leaf: Any, row: jax.ShapeDtypeStruct) -> np.ndarray:
            array = np.asarray(leaf)
            if array.shape != (numbers.size, *row.shape):
                raise ValueError(
                    f"{self.name}: take({numbers.size} numbers) of the source returned an array of shape "
                    f"{array.shape}; {(numbers.size, *row.shape)} was expected."
                )
            return array.astype(row.dtype, copy=False).reshape(numbers.shape + row.shape)

        return jax.tree.map(fitting, batch, self._row)


def as_mapped(source: Source) -> PyTree | None:
    """Return the arrays of a source as arrays of JAX that share their memory; None where that is not possible."""
    if type(source) is not Arrays or jax.default_backend() != "cpu":  # one of the user's own may change what it reads
        return None
    leaves = jax.tree.leaves(source.arrays)
    files = [leaf for leaf in leaves if isinstance(leaf, np.memmap)]
    if not files or sum(leaf.nbytes for leaf in leaves) > SHARE * available_bytes():
        return None
    if not all(leaf.dtype.isnative and leaf.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in leaves):
        return None  # JAX would convert all of it
    if not all(leaf.flags.c_contiguous and leaf.ctypes.data % ALIGNED == 0 for leaf in files):
        return None
    return jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=True), source.arrays)


def _row(name: str, leaf: Any) -> jax.ShapeDtypeStruct:
    array = np.asarray(leaf)
    if array.ndim == 0 or array.shape[0] != 1:
        raise ValueError(
            f"{name}: take of the source must return arrays with one entry per number along their first axis; of one "
            f"number it made shape {array.shape}."
        )
    if array.dtype.kind not in "biufc" and not jnp.issubdtype(array.dtype, jnp.number):
        raise TypeError(f"{name}: take of the source returned an array of {array.dtype}, which JAX has not.")
    return jax.ShapeDtypeStruct(array.shape[1:], jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("=")))
