"""The inner loop that double-loop methods share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bilax import keys
from bilax.oracle import Oracle
from bilax.tree import axpy, zeros_like
from bilax.types import Key, PyTree, Scalar


def sgd(
    oracle: Oracle, key: Key, x: PyTree, y: PyTree, T: int, S: int, step: Callable[[jax.Array], Scalar]
) -> tuple[PyTree, PyTree]:
    """Take T steps ``y <- Proj_Y(y - step(t) grad_y G(x, y; B_t))``; return the last y and the last gradient."""

    def once(carry, at_t):
        y, _ = carry
        t, key_t = at_t
        u = oracle.grad_G(x, y, oracle.draw_G(key_t, S))
        return (oracle.project_y(axpy(-step(t), u, y)), u), None

    (y, u), _ = jax.lax.scan(once, (y, zeros_like(y)), (jnp.arange(T), keys.turns(key, T)))
    return y, u


def decay(c: Scalar, k: jax.Array, exponent: Scalar) -> jax.Array:
    """Return ``c / (k + 1)^exponent``."""
    return c / (k + 1.0) ** exponent
