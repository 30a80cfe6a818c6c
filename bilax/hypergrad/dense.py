"""Dense matrices of a small problem: the exact estimator, and what STABLE and RSVRB keep."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bilax.hypergrad.neumann import Estimate, ratio
from bilax.numerics import memory
from bilax.numerics.constraints import off_the_set
from bilax.numerics.tree import axpy, size
from bilax.oracle import Oracle
from bilax.types import PyTree, Scalar


class Matrices(NamedTuple):
    xy: jax.Array  # grad_x grad_y G, of shape (d_x, d_y)
    yy: jax.Array  # grad_y^2 G, of shape (d_y, d_y)


def matrices(oracle: Oracle, x: PyTree, y: PyTree, batch: PyTree) -> Matrices:
    """Return both matrices on a batch, by products with the columns of the identity: d_y products of each kind."""
    flat, unravel = ravel_pytree(y)
    columns = jnp.eye(flat.size, dtype=flat.dtype)
    xy = jax.vmap(lambda e: ravel_pytree(oracle.jvp_G(x, y, batch, unravel(e)))[0])(columns)
    yy = jax.vmap(lambda e: ravel_pytree(oracle.hvp_G(x, y, batch, unravel(e)))[0])(columns)
    return Matrices(xy.T, yy)


def zeros(method: str, x0: PyTree, y0: PyTree) -> Matrices:
    """Return zero matrices for a method to recurse on, or refuse if they would not fit."""
    refuse_if_too_large(method, x0, y0)
    x, y = ravel_pytree(x0)[0], ravel_pytree(y0)[0]
    return Matrices(jnp.zeros((x.size, y.size), x.dtype), jnp.zeros((y.size, y.size), y.dtype))


def calls(y: PyTree, batch: PyTree) -> int:
    """Return the products of each kind, in samples, that one evaluation of `matrices` takes."""
    return ravel_pytree(y)[0].size * size(batch)


def project(m: Matrices, mu: Scalar, C: Scalar) -> Matrices:
    """Return the nearest matrices with singular values of xy at most C and eigenvalues of yy at least mu."""

    def clip(xy):
        U, s, V = jnp.linalg.svd(xy, full_matrices=False)
        return (U * jnp.minimum(s, C)) @ V

    # The Frobenius norm bounds the largest singular value, so that mostly no decomposition is needed.
    xy = jax.lax.cond(jnp.linalg.norm(m.xy) <= C, lambda xy: xy, clip, m.xy)

    def raise_eigenvalues(yy):
        values, vectors = jnp.linalg.eigh(yy)
        return (vectors * jnp.maximum(values, mu)) @ vectors.T

    # If yy - mu I has a Cholesky factor, all eigenvalues exceed mu; this is much quicker than an eigendecomposition.
    yy = (m.yy + m.yy.T) / 2
    above = jnp.all(jnp.isfinite(jnp.linalg.cholesky(yy - mu * jnp.eye(yy.shape[0], dtype=yy.dtype))))
    return Matrices(xy, jax.lax.cond(above, lambda yy: yy, raise_eigenvalues, yy))


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B_F: PyTree, B_G: PyTree) -> Estimate:
    """Return grad_x F - (grad_x grad_y G) (grad_y^2 G)^-1 grad_y F with the dense matrices of one batch."""
    F_x, F_y = oracle.grad_F(x, y, B_F)
    m = matrices(oracle, x, y, B_G)
    b, unravel = ravel_pytree(oracle.tangent(x, y, B_G, F_y))
    tangent = jax.vmap(lambda e: ravel_pytree(oracle.tangent(x, y, B_G, unravel(e)))[0])(jnp.eye(b.size, dtype=b.dtype))
    H = off_the_set(tangent, m.yy)
    w = oracle.factor(H)(b)
    residual = ratio(jnp.linalg.norm(H @ w - b), jnp.linalg.norm(b))
    return Estimate(axpy(-1, ravel_pytree(F_x)[1](m.xy @ w), F_x), jnp.zeros_like(residual), residual)


def refuse_if_too_large(method: str, x0: PyTree, y0: PyTree) -> None:
    """Raise a MemoryError with the bytes that the matrices would take, before anything is allocated."""
    shapes = [jax.tree.leaves(jax.eval_shape(lambda z: ravel_pytree(z)[0], z))[0] for z in (x0, y0)]
    (d_x, d_y), width = (int(s.shape[0]) for s in shapes), shapes[1].dtype.itemsize
    # about six of each matrix: kept, evaluated at two points, combined, and decomposed
    parts = {f"({d_x}, {d_y})": 6 * width * d_x * d_y, f"({d_y}, {d_y})": 6 * width * d_y * d_y}
    memory.refuse_if_too_large(
        f"{method} keeps dense matrices; a step",
        parts,
        "Use a method without dense matrices, such as MRBO or SUSTAIN (bilax.hypergrad.ConjugateGradient).",
    )
