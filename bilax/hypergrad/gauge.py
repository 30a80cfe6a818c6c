"""The largest eigenvalue L of the inner Hessian, and the step eta of a Neumann series that is safe for it.

A Neumann series converges to the inverse Hessian only if eta < 1/L (the paper's condition); its residual grows
once eta > 2/L. ``eta="auto"`` uses 0.9/L. L changes as x and y move, so it is measured again

- when x or y has moved by more than a fifth of its norm since the last measurement, or
- when the last series grew; L is then at least (1 + growth)/eta, whatever power iteration finds.

Both tests look at the state alone, so neither the chunk length nor a restart changes what is done.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import grew
from bilax.hyperparameters import Auto, Eta
from bilax.oracle import Oracle
from bilax.tree import axpy, norm, scale, size, where
from bilax.types import Key, PyTree, Scalar

ITERATIONS = 20
MOVED = 0.2


class Gauge(NamedTuple):
    """What ``eta="auto"`` remembers from step to step."""

    L: jax.Array
    x: PyTree  # where L was measured
    y: PyTree
    growth: jax.Array  # of the last series
    probes: jax.Array  # Hessian-vector products of single samples that the last step spent on measuring


def init(eta: Eta, x0: PyTree, y0: PyTree) -> Gauge | None:
    if not isinstance(eta, Auto):
        return None
    unmeasured = jnp.array(jnp.inf, norm(y0).dtype)  # an infinite growth asks for a measurement
    return Gauge(jnp.zeros_like(unmeasured), x0, y0, unmeasured, jnp.zeros((), jnp.int32))


def read(
    eta: Eta,
    gauge: Gauge | None,
    oracle: Oracle,
    key: Key,
    x: PyTree,
    y: PyTree,
    S: int,
    per_sample: bool = False,
) -> tuple[Scalar, Gauge | None]:
    """Return the eta to use at (x, y), and the gauge after a new measurement if one was due."""
    if gauge is None or not isinstance(eta, Auto):
        return cast(Scalar, eta), None
    due = grew(gauge.growth) | _moved(x, gauge.x) | _moved(y, gauge.y)
    # A loop of no passes instead of a branch: under vmap, a branch would always be taken.
    iterations = jnp.where(due, ITERATIONS, 0)
    L, samples = largest_eigenvalue(oracle, key, x, y, S, iterations, per_sample)
    at_least = jnp.where(jnp.isfinite(gauge.growth), (1 + gauge.growth) * gauge.L / eta.fraction, 0)
    L = jnp.where(due, jnp.maximum(L, jnp.where(grew(gauge.growth), at_least, 0)), gauge.L)
    here_x, here_y = where(due, (x, y), (gauge.x, gauge.y))
    gauge = Gauge(L, here_x, here_y, gauge.growth, (iterations * samples).astype(jnp.int32))
    return eta.fraction / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), gauge


def note(gauge: Gauge | None, growth: jax.Array) -> Gauge | None:
    """Return the gauge after a series whose residual grew by ``growth``."""
    return None if gauge is None else gauge._replace(growth=growth.astype(gauge.growth.dtype))


def probes(gauge: Gauge | None) -> Scalar:
    return 0 if gauge is None else gauge.probes


def largest_eigenvalue(
    oracle: Oracle,
    key: Key,
    x: PyTree,
    y: PyTree,
    S: int,
    iterations: Scalar = ITERATIONS,
    per_sample: bool = False,
) -> tuple[jax.Array, int]:
    """Return L of the inner Hessian on one batch by power iteration, and the number of samples in the batch.

    With ``per_sample`` it is the largest L of the samples taken one by one, which is what a factor made
    of a single sample must be safe for.
    """
    key_batch, key_start = jax.random.split(key)
    leaves, structure = jax.tree.flatten(y)
    starts = [
        jax.random.normal(k, leaf.shape, leaf.dtype)
        for k, leaf in zip(jax.random.split(key_start, len(leaves)), leaves, strict=True)
    ]
    start = jax.tree.unflatten(structure, starts)
    samples = size(jax.eval_shape(lambda k: oracle.draw_G(k, S), key_batch))

    def iterate(select):
        def once(_, carry):
            w, _ = carry
            Hw = oracle.hvp_G(x, y, select(oracle.draw_G(key_batch, S)), w)
            L = norm(Hw)
            return scale(1 / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), Hw), L

        unit = scale(1 / norm(start), start)
        return jax.lax.fori_loop(0, iterations, once, (unit, jnp.zeros_like(norm(start))))[1]

    if not per_sample:
        return iterate(lambda batch: batch), samples

    def alone(i):
        return lambda batch: jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, i, 1), batch)

    return jax.vmap(lambda i: iterate(alone(i)))(jnp.arange(samples)).max(), samples


def _moved(here: PyTree, there: PyTree) -> jax.Array:
    return norm(axpy(-1, there, here)) > MOVED * norm(there)
