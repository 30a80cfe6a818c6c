r"""Second derivatives where y is kept in a set: only directions that y can move in count.

At the inner solution y = P(y - s grad_y G(x, y)) for every s > 0, P being the projection onto the set. Differentiating
this equation instead of grad_y G = 0, with B the derivative of P at y - s grad_y G, gives

    hypergradient = F_x - J B w    where    B (H + (I - B) / s) B w = B F_y

For a box or a simplex, B projects onto the face that y lies on, and the second term is 0. For a curved set such as a
ball, it is the curvature of the boundary. B is the identity inside the set. The step s is as short as rounding allows,
so that y is not taken across the set; the equations hold up to terms that vanish with it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.second_derivatives import Products
from bilax.numerics.tree import axpy, norm, where
from bilax.types import PyTree


class Constrained(NamedTuple):
    products: Products
    tangent: Callable[..., PyTree]  # (x, y, batch, r) -> B r


def on_the_set(products: Products, grad_G: Callable[..., PyTree], project: Callable[[PyTree], PyTree]) -> Constrained:
    """Return the products for a y that is kept in the set of ``project``, and the map onto its tangent space."""

    def at(x: PyTree, y: PyTree, batch: PyTree) -> tuple[Callable[[PyTree], PyTree], jax.Array]:
        g = grad_G(x, y, batch)
        length = norm(g)
        short = jnp.finfo(length.dtype).eps ** 0.5 * jnp.maximum(1, norm(y))
        s = short / jnp.where(length > 0, length, 1)
        _derivative(project, y, y)  # for its message, should there be none; the compiler drops it
        there = axpy(-s, g, project(y))  # a start may lie outside of the set

        def B(r: PyTree) -> PyTree:
            inside, moved = _derivative(project, there, r)
            return where(inside, r, moved)

        return B, s

    def curved(B: Callable[[PyTree], PyTree], s: jax.Array, Br: PyTree, HBr: PyTree) -> PyTree:
        return B(axpy(1 / s, axpy(-1, B(Br), Br), HBr))

    def hvp(x, y, batch, r):
        B, s = at(x, y, batch)
        Br = B(r)
        return curved(B, s, Br, products.hvp(x, y, batch, Br))

    def jvp(x, y, batch, r):
        B, _ = at(x, y, batch)
        return products.jvp(x, y, batch, B(r))

    def linearize(x, y, batch, r):
        B, s = at(x, y, batch)
        Br = B(r)
        g, HBr, JBr = products.linearize(x, y, batch, Br)
        return g, curved(B, s, Br, HBr), JBr

    return Constrained(Products(hvp, jvp, linearize), lambda x, y, batch, r: at(x, y, batch)[0](r))


def _derivative(project: Callable[[PyTree], PyTree], z: PyTree, r: PyTree) -> tuple[jax.Array, PyTree]:
    """Tell whether z is in the set, where some projections (onto a ball, at its centre) have no derivative; return the
    derivative of the projection along r."""
    try:
        projected, moved = jax.jvp(project, (z,), (r,))
    except Exception as error:
        raise TypeError(
            "project_y cannot be differentiated, so a constraint on y would be ignored wherever it is active: "
            f"{type(error).__name__}: {error} Write it in plain JAX, or take it from optax.projections."
        ) from error
    same = [jnp.all(a == b) for a, b in zip(jax.tree.leaves(projected), jax.tree.leaves(z), strict=True)]
    return jnp.stack(same).all(), moved


def off_the_set(B: jax.Array, H: jax.Array) -> jax.Array:
    """Return a dense B H B, invertible: where y cannot move it becomes a multiple of the identity."""
    size = jnp.mean(jnp.abs(jnp.diag(H)))
    return H + jnp.where(size > 0, size, 1) * (jnp.eye(B.shape[0], dtype=B.dtype) - B)
