"""Differentiation in reverse through the inner loop, whole (Franceschi et al., 2017) or truncated."""

import math

import jax
import jax.numpy as jnp

from bilax import keys
from bilax.hypergrad.neumann import Estimate, ratio
from bilax.oracle import Counts, Oracle
from bilax.tree import axpy, norm, zeros_like
from bilax.types import Key, PyTree, Scalar


def hypergrad(
    oracle: Oracle, key: Key, B_F: PyTree, x: PyTree, y: PyTree, step: Scalar, T: int, last: int, S: int
) -> tuple[Estimate, PyTree, PyTree]:
    r"""Take T inner steps from y, then propagate the gradient of F back through the last of them.

    .. math::
        y_{t+1} = y_t - a \nabla_y G(x, y_t; B_t); \qquad
        p_T = \nabla_y F(x, y_T), \quad h \mathrel{-}= a \nabla_x \nabla_y G(x, y_t; B_t) p_{t+1}, \quad
        p_t = p_{t+1} - a \nabla_y^2 G(x, y_t; B_t) p_{t+1}

    Memory is bounded: every sqrt(last)-th y is kept, and the stretches between are taken a second time.
    Returns the estimate, y_T and the last inner gradient.
    """
    turns, (stretches, length) = keys.turns(key, T), _stretches(last)
    head, middle = T - last, T - last + stretches * length

    def forward(carry, keys_t):  # (y_t, the last gradient) -> the same at the end, and every y_t on the way
        def once(carry, key_t):
            y, _ = carry
            u = oracle.grad_G(x, y, oracle.draw_G(key_t, S))
            return (axpy(-step, u, y), u), y

        return jax.lax.scan(once, carry, keys_t)

    def backward(carry, ys, keys_t):
        def once(carry, at_t):
            h, p = carry
            y_t, key_t = at_t
            B_t = oracle.draw_G(key_t, S)
            h = axpy(-step, oracle.jvp_G(x, y_t, B_t, p), h)
            return (h, axpy(-step, oracle.hvp_G(x, y_t, B_t, p), p)), None

        return jax.lax.scan(once, carry, (ys, keys_t), reverse=True)[0]

    carry, _ = forward((y, zeros_like(y)), turns[:head])
    blocks = turns[head:middle].reshape(stretches, length)
    carry, starts = jax.lax.scan(lambda c, block: (forward(c, block)[0], c[0]), carry, blocks)
    (y, u), ys = forward(carry, turns[middle:])

    F_x, F_y = oracle.grad_F(x, y, B_F)
    carry = backward((F_x, F_y), ys, turns[middle:])

    def through_block(carry, start_and_block):
        start, block = start_and_block
        _, ys = forward((start, zeros_like(start)), block)
        return backward(carry, ys, block), None

    (h, p), _ = jax.lax.scan(through_block, carry, (starts, blocks), reverse=True)
    residual = ratio(norm(p), norm(F_y))
    return Estimate(h, jnp.zeros_like(residual), residual), y, u


def cost(S: int, T: int, last: int) -> Counts:
    stretches, length = _stretches(last)
    return Counts(F=S, G=(T + stretches * length) * S, JV=last * S, HV=last * S)


def _stretches(last: int) -> tuple[int, int]:
    length = max(1, math.isqrt(last))
    return last // length, length
