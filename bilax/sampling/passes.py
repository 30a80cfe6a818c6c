"""All samples of a level: exact means over them, and fixed blocks with numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bilax.numerics.tree import axpy, scale
from bilax.sampling.samplers import rows_from
from bilax.sampling.stored import Stored, bytes_per_sample, size_of
from bilax.types import PyTree, Scalar

CHUNK_BYTES = 2**25  # a pass over all data takes at most so many bytes of them at a time


def exact_mean(data: PyTree, fn: Callable[[PyTree], PyTree]) -> PyTree:
    """Return the exact mean over all samples of ``fn(batch)``, itself a mean over its batch.

    The data are taken in chunks, so the memory needed does not grow with the number of samples.

    >>> float(exact_mean(jnp.arange(10.0), lambda batch: batch.mean()))
    4.5
    """
    n = size_of(data)
    chunks = Blocks(data, _chunk(data))
    whole = n // chunks.length

    def add(i: Scalar, total: PyTree) -> PyTree:
        return axpy(chunks.length / n, fn(chunks.whole(i)), total)

    total = scale(chunks.length / n, fn(chunks.whole(0)))
    total = jax.lax.fori_loop(1, whole, add, total) if whole > 1 else total
    return total if chunks.short == 0 else axpy(chunks.short / n, fn(chunks.last()), total)


def _chunk(data: PyTree) -> int:
    """Return how many samples a pass takes at a time."""
    fitting = max(1, min(size_of(data), int(CHUNK_BYTES / max(1e-9, bytes_per_sample(data)))))
    unit = data.devices if isinstance(data, Stored) else 1  # they share a multiple of it evenly
    return max(1, fitting // unit) * unit


@dataclass(frozen=True)
class Blocks:
    """The data cut into contiguous blocks of ``length`` samples; the last one may be shorter.

    >>> blocks = Blocks(jnp.arange(10.0), 4)
    >>> blocks.count, [float(blocks.evaluate(i, jnp.mean)) for i in range(3)]
    (3, [1.5, 5.5, 8.5])
    >>> [float(blocks.weight(i)) for i in range(3)]
    [0.4, 0.4, 0.2]
    """

    data: PyTree
    length: int

    @property
    def count(self) -> int:
        return -(-size_of(self.data) // self.length)

    @property
    def short(self) -> int:
        """The samples of the last block, if it is shorter than the others; else 0."""
        return size_of(self.data) % self.length

    def samples(self, i: Scalar) -> jax.Array:
        """Return how many samples block i has."""
        return jnp.where(jnp.asarray(i) == self.count - 1, self.short or self.length, self.length)

    def weight(self, i: Scalar) -> jax.Array:
        """Return the share of block i in the data: the weighted mean over blocks is the mean over samples."""
        return self.samples(i) / size_of(self.data)

    def evaluate(self, i: Scalar, fn: Callable[[PyTree], PyTree]) -> PyTree:
        """Return ``fn(block i)``; i may be traced although the last block has another shape."""
        if self.short == 0:
            return fn(self.whole(i))
        if self.count == 1:
            return fn(self.last())
        return jax.lax.cond(jnp.asarray(i) == self.count - 1, lambda: fn(self.last()), lambda: fn(self.whole(i)))

    def whole(self, i: Scalar) -> PyTree:
        if isinstance(self.data, Stored):
            return self.data.block(i, self.length)
        return rows_from(self.data, jnp.asarray(i) * self.length, self.length)

    def last(self) -> PyTree:
        """Return the short block."""
        if isinstance(self.data, Stored):
            return self.data.rest(self.length)
        return rows_from(self.data, size_of(self.data) - self.short, self.short)
