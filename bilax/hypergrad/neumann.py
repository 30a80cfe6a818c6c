"""The Neumann-series hypergradient estimator (Yang, Ji and Liang, 2021, Algorithm 3, equations 4 and 5)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.tree import axpy, mean, norm, scale, size
from bilax.oracle import Counts, Oracle, each_batch
from bilax.sampling.stored import take
from bilax.types import Key, PyTree, Scalar

SHORT = 3  # up to so many factors are unrolled: with small batches, a loop takes a third of a step


class Batches(NamedTuple):
    """B_x = {B_F, B_G, B_1, ..., B_Q}: independent batches, so that equation 4 has no bias from sampling."""

    F: PyTree
    G: PyTree
    H: Key  # the keys of B_Q, ..., B_1, in the order of use: each batch is drawn where it is used
    S: int


class Estimate(NamedTuple):
    """An estimate of the hypergradient, and how far it can be trusted.

    Attributes:
      value: the estimate, a pytree like x.
      growth: the largest ratio of the norms of two residuals in turn; above 1 only if eta is too large.
      residual: the norm of the last residual over that of the first: what is left of the linear system.
      negative: whether a direction of negative curvature was met, which ended the search.
    """

    value: PyTree
    growth: jax.Array
    residual: jax.Array
    negative: Any = False


def draw(oracle: Oracle, key: Key, S: int, Q: int) -> Batches:
    key_F, key_G, key_H = jax.random.split(key, 3)
    return Batches(oracle.draw_F(key_F, S), oracle.draw_G(key_G, S), jax.random.split(key_H, Q), S)


def hypergrad(oracle: Oracle, x: PyTree, y: PyTree, B: Batches, eta: Scalar) -> Estimate:
    r"""Equation 4.

    .. math::
        \nabla_x F(x,y;B_F) - \nabla_x \nabla_y G(x,y;B_G) \; \eta \sum_{q=-1}^{Q-1} \prod_{j=Q-q}^{Q}
        (I - \eta \nabla_y^2 G(x,y;B_j)) \, \nabla_y F(x,y;B_F)
    """
    F_x, F_y = oracle.grad_F(x, y, B.F)  # line 2
    r_0 = oracle.tangent(x, y, B.G, F_y)

    through, batch_of = each_batch(oracle.draw_G, B.H, B.S)

    def factor(carry, item):  # lines 3-6
        r, total, before, growth = carry
        B_j = batch_of(item)
        r_next = axpy(-eta, oracle.hvp_G(x, y, B_j, r), r)
        after = norm(r_next)
        return (r_next, axpy(1, r_next, total), after, jnp.maximum(growth, ratio(after, before))), None

    first = norm(r_0)
    start = (r_0, r_0, first, jnp.zeros_like(first))
    (_, total, last, growth), _ = jax.lax.scan(factor, start, through, unroll=B.H.shape[0] <= SHORT)
    M_Q = scale(eta, total)  # line 7
    value = axpy(-1, oracle.jvp_G(x, y, B.G, M_Q), F_x)  # line 8
    return Estimate(value, growth, ratio(last, first))


def hypergrad_per_sample(oracle: Oracle, x: PyTree, y: PyTree, B: Batches, eta: Scalar) -> Estimate:
    """Equation 5: the mean of S chains, chain i running equation 4 on the single samples xi_i, zeta_i, zeta_i^j."""
    S = size(B.F)
    if S != size(B.G):
        raise ValueError(
            f"the per-sample estimator pairs outer with inner samples, but the batches hold {S} and {size(B.G)}; "
            "with sampler='full' it needs outer and inner data of equal length."
        )

    def chain(i):
        def alone(batch):
            return take(batch, i[None])

        single = oracle._replace(draw_G=lambda key, size: alone(oracle.draw_G(key, size)))
        return hypergrad(single, x, y, B._replace(F=alone(B.F), G=alone(B.G)), eta)

    chains = jax.vmap(chain)(jnp.arange(S))
    return Estimate(mean(chains.value), chains.growth.max(), chains.residual.mean())


def with_larger_residuals(a: Estimate, b: Estimate) -> Estimate:
    """Return the first estimate with the larger growth and residual of the two."""
    return Estimate(a.value, jnp.maximum(a.growth, b.growth), jnp.maximum(a.residual, b.residual))


def told(estimate: Estimate, eta: Scalar) -> dict[str, Any]:
    """Return what a step tells of its series, in the `Info` of every method that has one."""
    growth = estimate.growth
    return {"eta": eta, "growth": growth, "diverging": grew(growth), "residual": estimate.residual}


def cost(S: int, Q: int) -> Counts:
    return Counts(F=S, JV=S, HV=Q * S)


def grew(growth: jax.Array) -> jax.Array:
    """Tell whether a residual grew by more than rounding, which no eta below 2/L allows. NaN counts as growth."""
    growth = jnp.asarray(growth)
    return ~(growth <= 1 + jnp.finfo(growth.dtype).eps ** 0.5)


def ratio(after: jax.Array, before: jax.Array) -> jax.Array:
    """Return after / before, or 0 if there was nothing before; NaN stays NaN."""
    return jnp.where(before == 0, 0, after / jnp.where(before == 0, 1, before))
