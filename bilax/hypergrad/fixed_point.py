"""The fixed-point iteration of approximate implicit differentiation (AID-FP; Grazzi et al., 2020)."""

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, scale, zeros_like
from bilax.oracle import Counts, Oracle
from bilax.types import PyTree, Scalar


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree, N: int, eta: Scalar) -> Estimate:
    r"""Iterate the adjoint of the map :math:`y \mapsto y - \eta \nabla_y G(x, y; B_G)`, on one batch.

    .. math::
        v_{i+1} = (I - \eta \nabla_y^2 G) v_i + \nabla_y F, \quad v_0 = 0, \qquad
        \nabla_x F - \eta \nabla_x \nabla_y G \, v_N
    """
    F_x, F_y = oracle.grad_F(x, y, B_F)
    F_y = oracle.tangent(x, y, B_G, F_y)

    def once(carry, _):
        v, before, growth = carry
        v_next = axpy(1, F_y, axpy(-eta, oracle.hvp_G(x, y, B_G, v), v))
        change = norm(axpy(-1, v, v_next))
        # Once there is nothing left but rounding, it may well grow.
        grown = jnp.where(change <= rounding, 0, ratio(change, before))
        return (v_next, change, jnp.maximum(growth, grown)), None

    none = jnp.zeros_like(norm(F_y))
    rounding = jnp.finfo(none.dtype).eps ** 0.5 * norm(F_y)
    (v, change, growth), _ = jax.lax.scan(once, (zeros_like(F_y), none, none), length=N)
    value = axpy(-1, oracle.jvp_G(x, y, B_G, scale(eta, v)), F_x)
    return Estimate(value, growth, ratio(change, norm(F_y)))


def cost(S: int, N: int) -> Counts:
    return Counts(F=S, JV=S, HV=N * S)
