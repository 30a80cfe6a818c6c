"""The Nyström approximation of the inverse Hessian (Hataya and Yamada, AISTATS 2023)."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics.tree import axpy, norm
from bilax.oracle import Oracle
from bilax.types import Key, PyTree, Scalar


def hypergrad(
    oracle: Oracle, key: Key, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree, rank: int, damping: Scalar
) -> Estimate:
    r"""Approximate :math:`w = (\nabla_y^2 G + \rho I)^{-1} \nabla_y F` from k columns of the Hessian, drawn at random.

    With C the k rows, M their k x k part, u the right-hand side: :math:`w = u/\rho - C^T (M + C C^T/\rho)^{-1} C u /
    \rho^2`. The residual is that of the damped system, and takes one more product.
    """
    F_x, F_y = oracle.grad_F(x, y, B_F)
    u, shaped = ravel_pytree(oracle.tangent(x, y, B_G, F_y))
    chosen = jax.random.choice(key, u.size, (min(rank, u.size),), replace=False)

    def times(r: jax.Array) -> jax.Array:
        return ravel_pytree(oracle.hvp_G(x, y, B_G, shaped(r)))[0]

    C = jax.vmap(lambda i: times(jnp.zeros_like(u).at[i].set(1)))(chosen)
    rho = jnp.asarray(damping, u.dtype)
    small = C[:, chosen] + C @ C.T / rho
    w = u / rho - C.T @ jnp.linalg.solve((small + small.T) / 2, C @ u) / rho**2
    value = axpy(-1, oracle.jvp_G(x, y, B_G, shaped(w)), F_x)
    residual = ratio(norm(times(w) + rho * w - u), norm(u))
    return Estimate(value, jnp.zeros_like(residual), residual)
