"""Arithmetic on pytrees: the few operations that algorithm files need.

Scalars are cast to the dtype of the leaf they multiply, so that a float64 step size never turns
float32 variables into float64 ones.
"""

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.types import Key, PyTree, Scalar


def axpy(a: Scalar, x: PyTree, y: PyTree) -> PyTree:
    """Return ``a * x + y`` in the dtype of ``y``."""
    return jax.tree.map(lambda xi, yi: (jnp.asarray(a, yi.dtype) * xi + yi).astype(yi.dtype), x, y)


def scale(a: Scalar, x: PyTree) -> PyTree:
    """Return ``a * x`` in the dtype of ``x``."""
    return jax.tree.map(lambda xi: jnp.asarray(a, xi.dtype) * xi, x)


def storm(m: PyTree, a: Scalar, new: PyTree, old: PyTree) -> PyTree:
    """Return the recursive-momentum estimate ``new + (1 - a) * (m - old)``."""
    return jax.tree.map(lambda mi, ni, oi: ni + (1 - jnp.asarray(a, mi.dtype)) * (mi - oi), m, new, old)


def lerp(a: Scalar, old: PyTree, new: PyTree) -> PyTree:
    """Return ``(1 - a) * old + a * new``."""

    def mix(oi: jax.Array, ni: jax.Array) -> jax.Array:
        weight = jnp.asarray(a, oi.dtype)
        return (1 - weight) * oi + weight * ni

    return jax.tree.map(mix, old, new)


def norm(x: PyTree) -> jax.Array:
    """Return the Euclidean norm over all leaves, accumulated in at least float32."""
    return jnp.sqrt(reduce(jnp.add, [jnp.sum(jnp.square(leaf.astype(_wide(leaf)))) for leaf in jax.tree.leaves(x)]))


def vdot(x: PyTree, y: PyTree) -> jax.Array:
    """Return the inner product over all leaves, accumulated in at least float32."""

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.vdot(a.astype(_wide(a)), b.astype(_wide(a)))

    return reduce(jnp.add, jax.tree.leaves(jax.tree.map(product, x, y)))


def _wide(leaf: jax.Array) -> Any:
    return leaf.dtype if jnp.finfo(leaf.dtype).bits >= 32 else jnp.float32


def real(k: Scalar) -> jax.Array:
    """Return a counter as a real number, to compute with."""
    return jnp.asarray(k, float)


def zeros_like(x: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, x)


def normal_like(key: Key, x: PyTree) -> PyTree:
    """Return independent normal numbers in the shape of ``x``."""
    leaves, structure = jax.tree.flatten(x)
    each = jax.random.split(key, len(leaves))
    normal = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(each, leaves, strict=True)]
    return jax.tree.unflatten(structure, normal)


def scattered_like(x: PyTree, seed: int = 0) -> PyTree:
    """Return numbers between -1 and 1 in the shape of ``x``, as if at random: hashes of each number's position.

    Unlike plain signs, no two are opposite, so that equal columns or sums of a few numbers do not cancel.
    """
    leaves, structure = jax.tree.flatten(x)
    numbers, first = [], 0x7F4A7C15 * seed
    for leaf in leaves:
        h = jax.lax.iota(jnp.uint32, leaf.size) + jnp.uint32(first % 2**32)
        h = h * jnp.uint32(0x9E3779B1)
        h = (h ^ (h >> 15)) * jnp.uint32(0x85EBCA77)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE3D)
        part = jax.lax.bitcast_convert_type(h ^ (h >> 16), jnp.int32).astype(jnp.float32) * 2.0**-31
        numbers.append(part.astype(leaf.dtype).reshape(leaf.shape))
        first += leaf.size
    return jax.tree.unflatten(structure, numbers)


def copied(x: PyTree) -> PyTree:
    """Return arrays of JAX that hold what the given ones hold now, whatever becomes of those."""
    return jax.block_until_ready(jax.tree.map(_copied, x))


def _copied(xi: Any) -> jax.Array:
    if isinstance(xi, np.ndarray):
        return jax.device_put(np.array(xi))  # `jnp.array` compiles a program for every shape
    return xi if isinstance(xi, jax.Array) else jnp.array(xi)


def mean(x: PyTree) -> PyTree:
    """Return the mean over the leading axis of every leaf."""
    return jax.tree.map(lambda xi: xi.mean(0), x)


def where(condition: Scalar, x: PyTree, y: PyTree) -> PyTree:
    return jax.tree.map(lambda xi, yi: jnp.where(condition, xi, yi), x, y)


def size(x: PyTree) -> int:
    """Return the length of the leading axis that the leaves share."""
    return jax.tree.leaves(x)[0].shape[0]
