"""SubBiO's subspace of two dimensions (Gao, Yang and Yuan, ICLR 2025), on one batch, from v = 0."""

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, scale, vdot, zeros_like
from bilax.oracle import Oracle
from bilax.types import PyTree, Scalar


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree, N: int, eta: Scalar) -> Estimate:
    r"""Solve :math:`\nabla_y^2 G v = u` N times in the span of u and :math:`(I - \eta \nabla_y^2 G) v`, from v = 0."""
    F_x, F_y = oracle.grad_F(x, y, B_F)
    u = oracle.tangent(x, y, B_G, F_y)
    first = norm(u)
    a = scale(_inverse(first), u)
    Ha = oracle.hvp_G(x, y, B_G, a)

    def once(carry, _):
        v, Hv = carry
        b = axpy(-eta, Hv, v)
        along = norm(b)
        b = axpy(-vdot(a, b), a, b)
        # What is left of b is rounding if it lay along u.
        b = scale(jnp.where(norm(b) > 1e-5 * along, _inverse(norm(b)), 0), b)
        Hb = oracle.hvp_G(x, y, B_G, b)
        there = vdot(b, b) > 0.5
        T = jnp.stack(
            [jnp.stack([vdot(a, Ha), vdot(a, Hb)]), jnp.stack([vdot(b, Ha), jnp.where(there, vdot(b, Hb), 1)])]
        )
        c = jnp.linalg.solve(T, jnp.stack([first, jnp.zeros_like(first)]))
        return (axpy(c[0], a, scale(c[1], b)), axpy(c[0], Ha, scale(c[1], Hb))), None

    (v, Hv), _ = jax.lax.scan(once, (zeros_like(u), zeros_like(u)), length=N)
    residual = ratio(norm(axpy(-1, u, Hv)), first)
    value = axpy(-1, oracle.jvp_G(x, y, B_G, v), F_x)
    return Estimate(value, jnp.zeros_like(residual), residual)


def _inverse(a: jax.Array) -> jax.Array:
    return jnp.where(a > 0, 1 / jnp.where(a > 0, a, 1), 0)
