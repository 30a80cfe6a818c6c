"""A branch that stays one under `jax.vmap`."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from bilax.numerics.tree import where
from bilax.types import Scalar

T = TypeVar("T")


def branch(wanted: Scalar, yes: Callable[[], T], no: Callable[[], T]) -> T:
    """Return ``yes()`` if wanted, else ``no()``.

    Under `jax.vmap`, `jax.lax.cond` would evaluate both for every run at every step. Here, ``yes`` is evaluated only
    where some run wants it: a restart that all runs make at the same step costs as much as without vmap.

    >>> print(jax.vmap(lambda k: branch(k > 1, lambda: 10 * k, lambda: k))(jnp.arange(4)))
    [ 0  1 20 30]
    """
    wanted = jnp.asarray(wanted)
    return jax.lax.cond(any_run(wanted), lambda: where(this_run(wanted), yes(), no()), no)


@jax.custom_batching.custom_vmap
def any_run(wanted: jax.Array) -> jax.Array:
    """Tell whether something is wanted; under `jax.vmap`, in any of the runs, so that a branch stays a branch."""
    return wanted


@any_run.def_vmap
def _any_of_many(axis_size: int, in_batched: list[bool], wanted: jax.Array) -> tuple[jax.Array, bool]:
    return any_run(wanted.any(axis=0) if in_batched[0] else wanted), False


@jax.custom_batching.custom_vmap
def this_run(wanted: jax.Array) -> jax.Array:
    """Tell whether this run is one of those that want it; without `jax.vmap` there is only this one."""
    return jnp.ones_like(wanted)


@this_run.def_vmap
def _this_of_many(axis_size: int, in_batched: list[bool], wanted: jax.Array) -> tuple[jax.Array, bool]:
    return wanted, in_batched[0]
