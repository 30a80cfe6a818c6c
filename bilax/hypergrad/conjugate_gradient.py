"""Implicit differentiation with conjugate gradients (AID-CG)."""

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, vdot, zeros_like
from bilax.oracle import Counts, Oracle
from bilax.types import PyTree


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree, N: int) -> Estimate:
    r"""Solve :math:`\nabla_y^2 G \, w = \nabla_y F` by N steps from 0 on one batch; return
    :math:`\nabla_x F - \nabla_x \nabla_y G \, w`.

    All N steps are taken, so that the cost is certain; `Estimate.residual` tells how far they came. They change nothing
    any more once the system is solved up to rounding, or when a direction of negative curvature was met, which
    `Estimate.negative` tells: the best that was found until then is kept.
    """
    F_x, F_y = oracle.grad_F(x, y, B_F)
    F_y = oracle.tangent(x, y, B_G, F_y)

    def once(carry, _):
        w, r, p, rr, negative = carry
        Hp = oracle.hvp_G(x, y, B_G, p)
        pHp = vdot(p, Hp)
        negative = negative | ((pHp < 0) & (rr > solved))
        a = jnp.where((pHp > 0) & (rr > solved) & ~negative, _divide(rr, pHp), 0)
        w, r = axpy(a, p, w), axpy(-a, Hp, r)
        rr_next = vdot(r, r)
        return (w, r, axpy(_divide(rr_next, rr), p, r), rr_next, negative), None  # the axpy is the new direction p

    first = vdot(F_y, F_y)
    solved = (16 * jnp.finfo(first.dtype).eps) ** 2 * first
    start = (zeros_like(F_y), F_y, F_y, first, jnp.zeros((), bool))
    (w, r, _, _, negative), _ = jax.lax.scan(once, start, length=N)
    value = axpy(-1, oracle.jvp_G(x, y, B_G, w), F_x)
    residual = ratio(norm(r), norm(F_y))
    return Estimate(value, jnp.zeros_like(residual), residual, negative)


def cost(S: int, N: int) -> Counts:
    return Counts(F=S, JV=S, HV=N * S)


def _divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a / b, or 0 once the system is solved exactly and both vanish."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
