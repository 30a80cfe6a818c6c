"""The inner loop that double-loop methods share."""

from typing import Any

import jax
import jax.numpy as jnp

from bilax.numerics.tree import real, zeros_like
from bilax.optimisers import Step, descend
from bilax.oracle import Oracle, each_batch
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar


def sgd(
    oracle: Oracle, key: Key, x: PyTree, y: PyTree, memory: Any, T: int, S: int, step: Step, exponent: Scalar = 0.0
) -> tuple[PyTree, Any, PyTree]:
    """Take T steps ``y <- Proj_Y(y - step / (t + 1)^exponent grad_y G(x, y; B_t))``.

    Returns the last y, what the optimiser of y remembers, and the last gradient.
    """

    through, batch_of = each_batch(oracle.draw_G, keys.for_loop(key, T), S)

    def once(carry, at_t):
        y, memory, _ = carry
        t, item = at_t
        u = oracle.grad_G(x, y, batch_of(item))
        return (*descend(step, memory, u, y, oracle.project_y, decay(t, exponent)), u), None

    start = (y, memory, zeros_like(y))
    (y, memory, u), _ = jax.lax.scan(once, start, (jnp.arange(T), through))
    return y, memory, u


def decay(k: Scalar, exponent: Scalar) -> Scalar:
    """Return ``1 / (k + 1)^exponent``."""
    return 1.0 if isinstance(exponent, float) and exponent == 0 else 1 / (real(k) + 1) ** exponent
