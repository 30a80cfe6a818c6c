"""Products with second derivatives of G(x, y, batch), in three ways.

Each way returns, for a direction r in y, ``H r`` with H = grad_y^2 G, ``J r`` with J = grad_x grad_y G, and both
together with grad_y G from one linearisation.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.matmuls import fast_products
from bilax.numerics.tree import axpy, norm, scale, vdot
from bilax.types import PyTree

Loss = Callable[[PyTree, PyTree, PyTree], jax.Array]


class Products(NamedTuple):
    hvp: Callable[..., PyTree]  # (x, y, batch, r) -> H r
    jvp: Callable[..., PyTree]  # (x, y, batch, r) -> J r
    linearize: Callable[..., tuple[PyTree, PyTree, PyTree]]  # (x, y, batch, r) -> grad_y G, H r, J r


def forward_over_reverse(G: Loss) -> Products:
    """Differentiate the gradient forward: the quickest way, and the one with the least memory."""

    def hvp(x, y, batch, r):
        return jax.jvp(lambda y: jax.grad(G, argnums=1)(x, y, batch), (y,), (r,))[1]

    def jvp(x, y, batch, r):
        # Differentiating the directional derivative along r never builds grad_y G.
        return jax.grad(lambda x: jax.jvp(lambda y: G(x, y, batch), (y,), (r,))[1])(x)

    def linearize(x, y, batch, r):
        (_, G_y), (Jr, Hr) = jax.jvp(lambda y: jax.grad(G, argnums=(0, 1))(x, y, batch), (y,), (r,))
        return G_y, Hr, Jr

    return Products(*(_explained(fast_products(fn)) for fn in (hvp, jvp, linearize)))


def reverse_over_reverse(G: Loss) -> Products:
    """Differentiate the gradient in reverse: for losses with a backward pass of their own (`jax.custom_vjp`)."""

    def along(x, y, batch, r):
        return vdot(jax.grad(G, argnums=1)(x, y, batch), r)

    def linearize(x, y, batch, r):
        G_y, back = jax.vjp(lambda x, y: jax.grad(G, argnums=1)(x, y, batch), x, y)
        Jr, Hr = back(jax.tree.map(lambda g, r: r.astype(g.dtype), G_y, r))
        return G_y, Hr, Jr

    products = jax.grad(along, argnums=1), jax.grad(along, argnums=0), linearize
    return Products(*(fast_products(fn) for fn in products))


def central_differences(G: Loss, radius: float | None = None) -> Products:
    """Take differences of gradients at y + e r and y - e r, e = radius / |r|: for losses without second derivatives.

    The default radius, the cube root of the rounding error times max(1, |y|), balances rounding and curvature.
    """
    grads = jax.grad(G, argnums=(0, 1))

    def difference(x, y, batch, r):
        length = norm(r)
        far = jnp.finfo(length.dtype).eps ** (1 / 3) * jnp.maximum(1, norm(y)) if radius is None else radius
        e = far / jnp.where(length > 0, length, 1)
        after, before = grads(x, axpy(e, r, y), batch), grads(x, axpy(-e, r, y), batch)
        return scale(1 / (2 * e), axpy(-1, before, after))

    return Products(
        hvp=lambda x, y, batch, r: difference(x, y, batch, r)[1],
        jvp=lambda x, y, batch, r: difference(x, y, batch, r)[0],
        linearize=lambda x, y, batch, r: (grads(x, y, batch)[1], *difference(x, y, batch, r)[::-1]),
    )


WAYS = {"forward": forward_over_reverse, "reverse": reverse_over_reverse, "differences": central_differences}


def _explained(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Say what to do about a derivative rule without forward mode."""

    def call(*arguments):
        try:
            return fn(*arguments)
        except (TypeError, NotImplementedError) as error:
            if "forward-mode" not in str(error) and "custom_lin" not in str(error):
                raise
            raise TypeError(
                "inner_loss has a derivative rule without a forward mode (jax.custom_vjp), so its second derivatives "
                "cannot be taken forward over reverse. There are two ways out: Problem(second_derivatives='reverse') "
                "differentiates the backward pass once more, and Problem(second_derivatives='differences') needs no "
                "second derivative at all."
            ) from None

    return call
