"""Something simple for the inverse Hessian, and differences of gradients for products: no second derivative.

T1-T2, as in DARTS (Liu, Simonyan and Yang, ICLR 2019): a multiple of the identity. SAMA (Choe et al., NeurIPS 2023):
the derivative of the inner optimiser's step by its gradient.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm, scale
from bilax.optimisers import Step, descend
from bilax.oracle import Oracle
from bilax.types import PyTree, Scalar


def hypergrad(
    oracle: Oracle,
    x: PyTree,
    y: PyTree,
    B_F: PyTree,
    B_G: PyTree,
    inverse: Callable[[PyTree], PyTree],
    distance: Scalar,
) -> Estimate:
    r"""Return :math:`\nabla_x F - \nabla_x\nabla_y G w`, w being what ``inverse`` makes of :math:`\nabla_y F`, by a
    central difference of :math:`\nabla_x G` at :math:`y \pm e w` with :math:`e = R / |w|`.

    The same two gradients tell :math:`\nabla_y^2 G w`, and so what is left of the linear system.
    """
    F_x, F_y = oracle.grad_F(x, y, B_F)
    u = oracle.tangent(x, y, B_G, F_y)
    w = inverse(u)
    length = norm(w)
    e = distance / jnp.where(length > 0, length, 1)
    ahead, behind = (oracle.grads_G(x, axpy(sign * e, w, y), B_G) for sign in (1, -1))
    Jw, Hw = (scale(1 / (2 * e), axpy(-1, b, a)) for a, b in zip(ahead, behind, strict=True))
    residual = ratio(norm(axpy(-1, Hw, u)), norm(u))
    return Estimate(axpy(-1, Jw, F_x), jnp.zeros_like(residual), residual)


def of_the_step(step: Step, memory: Any, gradient: PyTree, y: PyTree) -> Callable[[PyTree], PyTree]:
    """Return D', D being how much less y is after a step for a larger gradient: the step itself, if it is a number."""
    _, pulled = jax.vjp(lambda g: descend(step, memory, g, y)[0], gradient)
    return lambda u: scale(-1, pulled(u)[0])
