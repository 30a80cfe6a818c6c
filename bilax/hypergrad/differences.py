"""T1-T2, as in DARTS (Liu, Simonyan and Yang, ICLR 2019): the identity for the inverse, no second derivative."""

import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, scale
from bilax.oracle import Oracle
from bilax.types import PyTree, Scalar


def hypergrad(
    oracle: Oracle, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree, alpha: Scalar, distance: Scalar
) -> Estimate:
    r"""Return :math:`\nabla_x F - \alpha \nabla_x\nabla_y G u`, u being :math:`\nabla_y F`, by a central difference of
    :math:`\nabla_x G` at :math:`y \pm e u` with :math:`e = R / |u|`.

    The same two gradients tell :math:`\nabla_y^2 G u`, and so what is left of the linear system.
    """
    F_x, F_y = oracle.grad_F(x, y, B_F)
    u = oracle.tangent(x, y, B_G, F_y)
    length = norm(u)
    e = distance / jnp.where(length > 0, length, 1)
    ahead, behind = (oracle.grads_G(x, axpy(sign * e, u, y), B_G) for sign in (1, -1))
    Ju, Hu = (scale(1 / (2 * e), axpy(-1, b, a)) for a, b in zip(ahead, behind, strict=True))
    residual = ratio(norm(axpy(-alpha, Hu, u)), length)
    return Estimate(axpy(-alpha, Ju, F_x), jnp.zeros_like(residual), residual)
