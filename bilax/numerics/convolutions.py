"""Convolutions as matrix products, on a CPU.

XLA hands a convolution to a fast library only where it stands alone: inside a compiled loop, which is where all steps
of a method are, it takes two to fifteen times as long. A product of the patches of the images with the kernel as a
matrix does not:

    before   conv(images, kernel)            after   patches(images) @ kernel

This is done to the loss, before it is differentiated, so that its derivatives are products, too.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.extend.core.primitives import conv_general_dilated_p

from bilax.numerics.matmuls import Values, applied
from bilax.numerics.platforms import on_cpu

F = TypeVar("F", bound=Callable)

LARGEST = 2**29  # bytes that patches may take


def with_products(loss: F, *, remember: bool = True) -> F:
    """Return a function that computes the same, with its convolutions as products; remember whether it has any.

    >>> def smooth(image):
    ...     return lax.conv(image[None, None], jnp.ones((1, 1, 3, 3)), (1, 1), "VALID")[0, 0]
    >>> jaxpr = jax.make_jaxpr(with_products(smooth))(jnp.ones((4, 4)))
    >>> "conv_general_dilated" in str(jaxpr), "dot_general" in str(jaxpr)
    (False, True)
    """

    has_any = _has_convolutions if remember else _has_convolutions.__wrapped__

    @wraps(loss, updated=())
    def call(*arguments):
        leaves, structure = jax.tree.flatten(arguments)
        if not on_cpu() or not has_any(loss, structure, tuple(map(_type, leaves))):
            return loss(*arguments)
        closed, shapes = jax.make_jaxpr(lambda *arguments: loss(*arguments), return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shapes), _evaluated(closed, leaves))

    return call  # type: ignore[return-value]


def _type(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return jnp.shape(leaf), jnp.result_type(leaf)


@lru_cache(maxsize=256)
def _has_convolutions(loss: Callable, structure: Any, types: tuple) -> bool:
    arguments = structure.unflatten([jax.ShapeDtypeStruct(*one) for one in types])
    try:
        return "conv_general_dilated" in str(jax.make_jaxpr(lambda *arguments: loss(*arguments))(*arguments))
    except Exception:  # what is wrong with the loss is told where it is used
        return False


def _evaluated(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    values = Values(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*closed.consts, *arguments), strict=True))
    for eqn in closed.eqns:
        inputs = values.of(eqn.invars)
        if eqn.primitive.name in ("jit", "pjit"):
            outputs = _evaluated(eqn.params["jaxpr"], inputs)
        elif eqn.primitive is conv_general_dilated_p and _pays(eqn):
            outputs = [_as_product(*inputs, **eqn.params)]
        else:
            outputs = applied(eqn, inputs)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return values.of(closed.jaxpr.outvars)


def _pays(eqn: JaxprEqn) -> bool:
    images, kernel, out = (cast(Any, atom.aval) for atom in (*eqn.invars, *eqn.outvars))
    numbers, groups = eqn.params["dimension_numbers"], eqn.params["feature_group_count"]
    places = math.prod(out.shape) // out.shape[numbers.out_spec[1]]
    patches = places * math.prod(kernel.shape) // kernel.shape[numbers.rhs_spec[0]] * groups
    alone = eqn.params["batch_group_count"] == 1 and groups == 1
    return alone and patches * images.dtype.itemsize <= LARGEST


def _as_product(
    images: jax.Array,
    kernel: jax.Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    precision: Any,
    preferred_element_type: Any,
    **_: Any,
) -> jax.Array:
    (n, c, *space), (o, i, *window), out_spec = dimension_numbers
    images, kernel = images.transpose(n, *space, c), kernel.transpose(*window, i, o)
    between = [(low, high, dilation - 1) for (low, high), dilation in zip(padding, lhs_dilation, strict=True)]
    images = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *between, (0, 0, 0)])
    for axis, (stride, dilation) in enumerate(zip(window_strides, rhs_dilation, strict=True)):
        reach = dilation * np.arange(kernel.shape[axis])
        starts = np.arange(0, images.shape[2 * axis + 1] - reach[-1], stride)
        images = jnp.take(images, starts[:, None] + reach, axis=2 * axis + 1, mode="clip")
    rank = len(space)
    places, offsets = range(1, 2 * rank + 1, 2), range(2, 2 * rank + 1, 2)
    patches = images.transpose(0, *places, *offsets, 2 * rank + 1)
    patches = patches.reshape(*patches.shape[: rank + 1], math.prod(kernel.shape[:-1]))
    out = lax.dot_general(
        patches,
        kernel.reshape(-1, kernel.shape[-1]),
        (((rank + 1,), (0,)), ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    back = np.empty(rank + 2, int)
    back[[out_spec[0], *out_spec[2:], out_spec[1]]] = np.arange(rank + 2)
    return out.transpose(*back)
