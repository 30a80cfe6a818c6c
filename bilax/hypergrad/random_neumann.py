"""The Neumann series of random length (Ghadimi and Wang, 2018), used by BSA, TTSA, MSTSA and SUSTAIN."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, scale, size
from bilax.oracle import Counts, Oracle, each_batch
from bilax.types import Key, PyTree, Scalar


class Batches(NamedTuple):
    """One length and one sequence of batches; both points of a recursion share them."""

    F: PyTree
    G: PyTree
    H: Key  # the keys of the factors' batches, in the order of use; the first p of them are drawn
    p: jax.Array  # uniform on 0, ..., Q
    S: int


def draw(oracle: Oracle, key: Key, S: int, Q: int) -> Batches:
    key_F, key_G, key_H, key_p = jax.random.split(key, 4)
    p = (jax.random.bits(key_p, (), jnp.uint32) % (Q + 1)).astype(jnp.int32)
    return Batches(oracle.draw_F(key_F, S), oracle.draw_G(key_G, S), jax.random.split(key_H, Q), p, S)


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B: Batches, eta: Scalar) -> Estimate:
    r"""An estimate with the same mean as equation 4, at half the products on average.

    .. math::
        \nabla_x F - \nabla_x \nabla_y G \; (Q + 1) \eta \prod_{i=1}^{p} (I - \eta \nabla_y^2 G(x,y;B_i)) \nabla_y F,
        \qquad p \sim U\{0, \dots, Q\}
    """
    F_x, F_y = oracle.grad_F(x, y, B.F)
    r_0 = oracle.tangent(x, y, B.G, F_y)

    through, batch_of = each_batch(oracle.draw_G, B.H, B.S)

    def factor(i, carry):
        r, before, growth = carry
        B_i = batch_of(jax.tree.map(lambda leaf: leaf[i], through))
        r_next = axpy(-eta, oracle.hvp_G(x, y, B_i, r), r)
        after = norm(r_next)
        return r_next, after, jnp.maximum(growth, ratio(after, before))

    first = norm(r_0)
    r, last, growth = jax.lax.fori_loop(0, B.p, factor, (r_0, first, jnp.zeros_like(first)))
    w = scale((B.H.shape[0] + 1) * eta, r)
    return Estimate(axpy(-1, oracle.jvp_G(x, y, B.G, w), F_x), growth, ratio(last, first))


def cost(S: int) -> Counts:
    """The calls whose number is certain; `spent` has the rest."""
    return Counts(F=S, JV=S)


def spent(B: Batches) -> jax.Array:
    """Return the Hessian-vector products, in samples, that one estimate takes."""
    return B.p * size(B.G)
