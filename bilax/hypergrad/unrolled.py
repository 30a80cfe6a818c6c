"""Differentiation in reverse through the inner loop, whole (Franceschi et al., 2017) or truncated."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax.functions import unconstrained
from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, zeros_like
from bilax.optimisers import Step, descend
from bilax.oracle import Counts, Oracle
from bilax.sampling import keys
from bilax.types import Key, PyTree


class Unrolled(NamedTuple):
    estimate: Estimate
    y: PyTree  # y_T
    memory: Any  # of the optimiser of y
    u: PyTree  # the last inner gradient


def hypergrad(
    oracle: Oracle, key: Key, B_F: PyTree, x: PyTree, y: PyTree, memory: Any, step: Step, T: int, last: int, S: int
) -> Unrolled:
    r"""Take T inner steps from y, then propagate the gradient of F back through the last of them.

    .. math::
        y_{t+1} = y_t - a \nabla_y G(x, y_t; B_t); \qquad
        p_T = \nabla_y F(x, y_T), \quad h \mathrel{-}= a \nabla_x \nabla_y G(x, y_t; B_t) p_{t+1}, \quad
        p_t = p_{t+1} - a \nabla_y^2 G(x, y_t; B_t) p_{t+1}

    An optimiser in place of the number a is differentiated as well, with what it remembers. Memory is bounded: every
    sqrt(last)-th point is kept, and the steps between them are taken a second time.
    """
    if oracle.project_y is not unconstrained:
        raise ValueError(
            "reverse differentiation goes through unprojected inner steps: give a problem without project_y, or take "
            "an implicit method such as AIDCG (bilax.hypergrad.ConjugateGradient)."
        )
    all_keys, (stretches, length) = keys.for_loop(key, T), _stretches(last)
    head, middle = T - last, T - last + stretches * length

    def forward(carry, keys_t):  # (y_t, memory, the last gradient) -> the same at the end, and all on the way
        def once(carry, key_t):
            y, memory, _ = carry
            u = oracle.grad_G(x, y, oracle.draw_G(key_t, S))
            return (*descend(step, memory, u, y), u), (y, memory, u)

        return jax.lax.scan(once, carry, keys_t)

    def backward(carry, points, keys_t):
        def once(carry, at_t):
            h, p, p_memory = carry
            (y, memory, u), key_t = at_t
            B_t = oracle.draw_G(key_t, S)
            floats, others = _split(memory)

            def moved(u, floats, y):
                y, memory = descend(step, _join(floats, others), u, y)
                return y, _split(memory)[0]

            p_u, p_memory, p = jax.vjp(moved, u, floats, y)[1]((p, p_memory))
            h = axpy(1, oracle.jvp_G(x, y, B_t, p_u), h)
            return (h, axpy(1, oracle.step_hvp_G(x, y, B_t, p_u), p), p_memory), None

        return jax.lax.scan(once, carry, (points, keys_t), reverse=True)[0]

    carry, _ = forward((y, memory, zeros_like(y)), all_keys[:head])
    blocks = all_keys[head:middle].reshape(stretches, length)
    carry, starts = jax.lax.scan(lambda c, block: (forward(c, block)[0], c[:2]), carry, blocks)
    (y, memory, u), points = forward(carry, all_keys[middle:])

    F_x, F_y = oracle.grad_F(x, y, B_F)
    carry = backward((F_x, F_y, zeros_like(_split(memory)[0])), points, all_keys[middle:])

    def through_block(carry, start_and_block):
        (y, memory), block = start_and_block
        _, points = forward((y, memory, zeros_like(y)), block)
        return backward(carry, points, block), None

    (h, p, _), _ = jax.lax.scan(through_block, carry, (starts, blocks), reverse=True)
    if oracle.start_y is not None and last == T:
        h = axpy(1, jax.vjp(oracle.start_y, x)[1](p)[0], h)
    residual = ratio(norm(p), norm(F_y))
    return Unrolled(Estimate(h, jnp.zeros_like(residual), residual), y, memory, u)


def cost(S: int, T: int, last: int) -> Counts:
    stretches, length = _stretches(last)
    return Counts(F=S, G=(T + stretches * length) * S, JV=last * S, HV=last * S)


def _stretches(last: int) -> tuple[int, int]:
    length = max(1, math.isqrt(last))
    return last // length, length


_HOLE = object()  # where a number with a derivative was taken out


def _split(memory: Any) -> tuple[list, Any]:
    """Return the numbers of an optimiser's memory that have derivatives, and the memory without them."""
    floats = [leaf for leaf in jax.tree.leaves(memory) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return floats, jax.tree.map(lambda leaf: _HOLE if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, memory)


def _join(floats: list, others: Any) -> Any:
    left = iter(floats)
    return jax.tree.map(lambda leaf: next(left) if leaf is _HOLE else leaf, others)
