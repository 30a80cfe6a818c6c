"""Products with second derivatives of G(x, y, batch), in three ways or the first that works, and two that stand in for
them.

Each way returns, for a direction r in y, ``H r`` with H = grad_y^2 G, ``J r`` with J = grad_x grad_y G, and both
together with grad_y G from one linearisation.

Where H is singular or not positive definite, as for most networks, `Damped` adds to its diagonal, and `GaussNewton`
leaves out what makes it indefinite. Both name the ``exact`` way, which is what a step of gradient descent is
differentiated by and what a solution is judged by.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.convolutions import with_products
from bilax.numerics.layout import turn_back
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


def automatic(G: Loss) -> Products:
    """Take the first of the three ways above for which the loss has the derivative rules, and say so if it is not the
    first."""
    ways = [forward_over_reverse(G), reverse_over_reverse(G), central_differences(G)]

    def first_that_works(name: str) -> Callable[..., Any]:
        def call(*arguments):
            for number, way in enumerate(ways):
                try:
                    found = getattr(way, name)(*arguments)
                except (TypeError, NotImplementedError, ValueError) as error:
                    if number + 1 == len(ways) or not _lacks_a_rule(error):
                        raise
                else:
                    if number:
                        warnings.warn(INSTEAD[number - 1], stacklevel=2)
                    return found

        return call

    return Products(*(first_that_works(name) for name in Products._fields))


INSTEAD = (  # what is said of the second way and of the third
    "inner_loss has a derivative rule without a forward mode (jax.custom_vjp): its second derivatives are taken by "
    "reverse over reverse, through that rule. If it holds something constant (a stop_gradient), they are wrong: take "
    "Problem(second_derivatives='differences') then. Problem(second_derivatives='reverse') silences this.",
    "inner_loss has a derivative rule that cannot be differentiated again: its second derivatives are taken by central "
    "differences of gradients. Problem(second_derivatives='differences') says the same in silence.",
)


def has_rules(attempt: Callable[[], Any]) -> bool:
    """Tell whether an attempt to differentiate finds the derivative rules that it needs."""
    try:
        attempt()
    except (TypeError, NotImplementedError, ValueError) as error:
        if not _lacks_a_rule(error):
            raise
        return False
    return True


def error_of_reverse(G: Loss, x: PyTree, y: PyTree, batch: PyTree) -> float:
    """Return how far H r and J r by reverse over reverse are, for one direction r, from differences of gradients:
    about 0 if the rules of the loss can be differentiated, 1 if they hold all constant."""
    r = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), y)
    g, *products = jax.jit(reverse_over_reverse(G).linearize)(x, y, batch, r)
    _, *differences = jax.jit(central_differences(G).linearize)(x, y, batch, r)
    rounding = jnp.finfo(norm(g).dtype).eps ** (2 / 3) * norm(g) * norm(r)
    errors = [norm(axpy(-1, a, b)) / (norm(b) + 100 * rounding) for a, b in zip(products, differences, strict=True)]
    return float(max(errors))


def _lacks_a_rule(error: Exception) -> bool:
    """Tell whether this is what JAX says of a function that it cannot differentiate (again)."""
    said = ("forward-mode", "forward mode", "custom_lin", "do not support JVP", "Differentiation rule")
    return any(words in str(error) for words in said)


@dataclass(frozen=True)
class Damped:
    """H + damping I in place of H; all else as in another way."""

    way: Callable[[Loss], Products]
    damping: float

    @property
    def exact(self) -> Callable[[Loss], Products]:
        return getattr(self.way, "exact", self.way)

    def __call__(self, G: Loss) -> Products:
        hvp, jvp, linearize = self.way(G)

        def more(x, y, batch, r):
            return axpy(self.damping, r, hvp(x, y, batch, r))

        def linearize_more(x, y, batch, r):
            G_y, Hr, Jr = linearize(x, y, batch, r)
            return G_y, axpy(self.damping, r, Hr), Jr

        return Products(more, jvp, linearize_more)


def _batch_alone(draw: PyTree) -> tuple[Any, ...]:
    return (draw,)


@dataclass(frozen=True)
class LossOfOutputs:
    """A loss of what a model puts out, as one of the arguments of the model."""

    outputs: Callable[..., PyTree]
    loss: Callable[..., jax.Array]

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.outputs)

    def __call__(self, x: PyTree, y: PyTree, batch: PyTree, *others: Any) -> jax.Array:
        return self.loss(x, y, self.outputs(x, y, batch, *others), batch)


@dataclass(frozen=True)
class GaussNewton:
    """The curvature of an inner loss through what its model puts out: positive semi-definite if the loss is convex.

    The inner loss is ``loss(x, y, outputs(x, y, batch), batch)``, for which `inner_loss` can be given; what the loss
    does with y itself, such as a penalty, keeps its own second derivative. The model's is left out, which is what
    makes the Hessian of a network indefinite. If ``outputs`` also takes ``key`` or ``carried``, so does `inner_loss`.

    Attributes:
      outputs: ``outputs(x, y, batch)``, what the model puts out, such as logits.
      loss: ``loss(x, y, outputs, batch) -> scalar``.
      prepare: as in the problem, which sets it.

    >>> model = GaussNewton(
    ...     outputs=lambda x, y, batch: jnp.tanh(batch @ y), loss=lambda x, y, z, batch: jnp.mean((z - 1) ** 2)
    ... )
    >>> y, batch, r = jnp.ones(2), jnp.eye(2), jnp.array([1.0, 0.0])
    >>> Hr = model(model.inner_loss).hvp(None, y, batch, r)
    >>> print([round(float(number), 4) for number in Hr])
    [0.1764, 0.0]
    """

    outputs: Callable[..., PyTree]
    loss: Callable[[PyTree, PyTree, PyTree, PyTree], jax.Array]
    arguments: Callable[[PyTree], tuple[Any, ...]] = _batch_alone  # of what is drawn; the problem sets it

    exact = staticmethod(automatic)

    @property
    def inner_loss(self) -> Callable[..., jax.Array]:
        """The inner loss to give to the problem: ``Problem(inner_loss=model.inner_loss, second_derivatives=model)``."""
        return LossOfOutputs(self.outputs, self.loss)

    def __call__(self, G: Loss) -> Products:
        def hvp(x, y, draw, r):
            batch, *others = self.arguments(draw)

            def outputs(y):
                return with_products(self.outputs, remember=False)(x, turn_back(y), batch, *others)

            def loss(y, z):
                return self.loss(x, turn_back(y), z, batch)

            z, dz = jax.jvp(outputs, (y,), (r,))
            curved = jax.jvp(lambda z: jax.grad(loss, argnums=1)(y, z), (z,), (dz,))[1]
            (through,) = jax.vjp(outputs, y)[1](curved)
            direct = jax.jvp(lambda y: jax.grad(loss)(y, z), (y,), (r,))[1]
            return axpy(1, direct, through)

        product, jvp = fast_products(hvp), automatic(G).jvp

        def linearize(x, y, batch, r):
            return jax.grad(G, argnums=1)(x, y, batch), product(x, y, batch, r), jvp(x, y, batch, r)

        return Products(product, jvp, linearize)


WAYS = {
    "auto": automatic,
    "forward": forward_over_reverse,
    "reverse": reverse_over_reverse,
    "differences": central_differences,
}


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
