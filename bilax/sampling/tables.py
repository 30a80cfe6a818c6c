"""What was last computed on each block of the data, and SAGA's estimate of the mean from it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.tree import axpy
from bilax.sampling.passes import Blocks
from bilax.types import PyTree, Scalar


class Table(NamedTuple):
    rows: PyTree  # the last value of each block, along a leading axis
    mean: PyTree  # their weighted mean


def exact(blocks: Blocks, fn: Callable[[PyTree], PyTree]) -> Table:
    """Return the table of ``fn(block)`` for every block.

    >>> exact(Blocks(jnp.arange(10.0), 4), jnp.mean).mean.item()
    4.5
    """
    whole = blocks.count - (1 if blocks.short else 0)
    rows = jax.lax.map(lambda i: fn(blocks.whole(i)), jnp.arange(whole)) if whole else None
    if blocks.short:
        last = jax.tree.map(lambda leaf: leaf[None], fn(blocks.last()))
        rows = last if rows is None else jax.tree.map(lambda a, b: jnp.concatenate([a, b]), rows, last)
    weights = jax.vmap(blocks.weight)(jnp.arange(blocks.count))
    return Table(rows, jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, 1), rows))


def saga(table: Table, blocks: Blocks, i: Scalar, new: PyTree) -> tuple[PyTree, Table]:
    """Return an estimate of the mean, unbiased if every block is as likely, and the table with the new row i."""
    old, i = _read_first(table.rows, i)
    change = axpy(-1, old, new)
    weight = blocks.weight(i)
    estimate = axpy(blocks.count * weight, change, table.mean)
    rows = jax.tree.map(lambda rows, n: jax.lax.dynamic_update_index_in_dim(rows, n, i, 0), table.rows, new)
    return estimate, Table(rows, axpy(weight, change, table.mean))


def _read_first(rows: PyTree, i: Scalar) -> tuple[PyTree, Scalar]:
    """Return row i, and i again: what is written there is written after this.

    Otherwise the compiler reads the row where it is used, which may be later, and for that copies the table in every
    step. What a branch returns is not moved, and is there before anything that uses the i that it returns.
    """

    def row() -> tuple[PyTree, Scalar]:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False), rows), i

    def none() -> tuple[PyTree, Scalar]:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), rows), jnp.zeros_like(i)

    return jax.lax.cond(i >= 0, row, none)
