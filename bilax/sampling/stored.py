"""Samples that are kept elsewhere than in arrays of one device, and what arrays and they have in common."""

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from bilax.numerics import tree
from bilax.numerics.memory import bytes_of
from bilax.sparse import is_rows
from bilax.types import PyTree


class Stored(ABC):
    """Data of a level that are no pytree of arrays: a place from which samples are taken by their numbers."""

    samples: int  # how many there are
    devices = 1  # that share every batch

    @abstractmethod
    def take(self, numbers: jax.Array) -> PyTree:
        """Return the samples of these numbers as a batch."""

    def block(self, i: Any, length: int) -> PyTree:
        """Return the i-th of the ``samples // length`` disjoint batches of this length."""
        return self.take(jnp.asarray(i, jnp.int32) * length + jnp.arange(length, dtype=jnp.int32))

    def rest(self, length: int) -> PyTree:
        """Return the ``samples % length`` samples that are in none of those blocks."""
        return self.take(jnp.arange(self.samples - self.samples % length, self.samples, dtype=jnp.int32))

    @abstractmethod
    def everything(self) -> PyTree:
        """Return all samples as one batch, or say why not."""

    @property
    @abstractmethod
    def bytes_per_sample(self) -> float: ...


def size_of(data: PyTree) -> int:
    """Return how many samples there are."""
    return data.samples if isinstance(data, Stored) else tree.size(data)


def bytes_per_sample(data: PyTree) -> float:
    return data.bytes_per_sample if isinstance(data, Stored) else bytes_of(data) / max(1, tree.size(data))


def take(data: PyTree, index: jax.Array) -> PyTree:
    """Return the samples of these numbers."""
    if isinstance(data, Stored):
        return data.take(index)

    def rows(leaf: Any) -> Any:
        return leaf[index] if is_rows(leaf) else leaf.at[index].get(mode="promise_in_bounds")

    return jax.tree.map(rows, data, is_leaf=is_rows)
