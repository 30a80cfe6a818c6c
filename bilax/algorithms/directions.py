"""The directions in which the methods after SOBA move y, the solution v of the linear system, and x."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.tree import axpy, norm, scale
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.types import Key, PyTree, Scalar


class Directions(NamedTuple):
    y: PyTree  # grad_y G
    v: PyTree  # grad_y^2 G v - grad_y F
    x: PyTree  # grad_x F - grad_x grad_y G v


class Point(NamedTuple):
    x: PyTree
    y: PyTree
    v: PyTree


def draw(oracle: Oracle, key: Key, S: int) -> tuple[PyTree, PyTree]:
    """Return an inner and an outer batch."""
    key_G, key_F = jax.random.split(key)
    return oracle.draw_G(key_G, S), oracle.draw_F(key_F, S)


def on_batches(oracle: Oracle, z: Point, zeta: PyTree, xi: PyTree) -> Directions:
    """Return all three directions at one point, on one inner and one outer batch."""
    G_y, Hv, Jv = oracle.linearize_G(z.x, z.y, zeta, z.v)
    F_x, F_y = oracle.grad_F(z.x, z.y, xi)
    return Directions(G_y, axpy(-1, oracle.tangent(z.x, z.y, zeta, F_y), Hv), axpy(-1, Jv, F_x))


def on_all_data(oracle: Oracle, z: Point) -> Directions:
    """Return the exact directions: one pass over the outer data, one over the inner data."""
    F_x, F_y = oracle.mean_F(lambda xi: oracle.grad_F(z.x, z.y, xi))

    def pass_over(zeta: PyTree) -> tuple:
        return *oracle.linearize_G(z.x, z.y, zeta, z.v), oracle.tangent(z.x, z.y, zeta, F_y)

    G_y, Hv, Jv, F_y = oracle.mean_G(pass_over)
    return Directions(G_y, axpy(-1, F_y, Hv), axpy(-1, Jv, F_x))


def sarah(
    oracle: Oracle, key: Key, refresh: Scalar, anew: Callable[[], Directions], last: Directions, z: Point, old: Point,
    S: int,
) -> Directions:  # fmt: skip
    """Return ``anew()`` at a refresh; else the last directions, corrected by what two small batches say has changed."""

    def corrected() -> Directions:
        zeta, xi = draw(oracle, key, S)
        new, before = at_two_points(lambda *at: on_batches(oracle, Point(*at), zeta, xi), z, old)
        return jax.tree.map(lambda d, n, b: d + (n - b), last, new, before)

    return jax.lax.cond(refresh, anew, corrected)


def in_ball(v: PyTree, radius: Scalar) -> PyTree:
    """Return the nearest point of the ball; v itself if the radius is 0."""
    length = norm(v)
    shrink = jnp.where((radius > 0) & (length > radius), radius / jnp.where(length > 0, length, 1), 1)
    return scale(shrink, v)


def one_pass(oracle: Oracle) -> Counts:
    """Return the calls of `on_all_data`."""
    return Counts(F=oracle.size_F, G=oracle.size_G, JV=oracle.size_G, HV=oracle.size_G)


def calls_if(condition: Scalar, calls: Counts, otherwise: Counts = Counts()) -> Counts:  # noqa: B008
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), calls, otherwise)
