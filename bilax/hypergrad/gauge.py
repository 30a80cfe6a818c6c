"""The largest eigenvalue L of the inner Hessian, and the step eta of a Neumann series that is safe for it.

A Neumann series converges to the inverse Hessian only if eta < 1/L (the paper's condition); its residual grows
once eta > 2/L. ``eta="auto"`` uses 0.9/L, with L the largest one of as many batches of the method's own size as make
256 samples: a factor made of a single sample must be safe for the most curved sample. L changes as x and y move, so
it is measured again

- when x or y has moved by more than a fifth of its norm since the last measurement, and as many steps have passed
  as there were before it (so the measurements get rarer and cost little in the long run), or
- when the last series grew; L is then at least (1 + growth)/eta, whatever power iteration finds.

Both tests look at the state alone, so neither the chunk length nor a restart changes what is done.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import grew
from bilax.hyperparameters import Auto, Eta
from bilax.oracle import Oracle
from bilax.tree import axpy, norm, scale, signs_like, size, vdot, where
from bilax.types import Key, PyTree, Scalar

ITERATIONS = 20
SAMPLES = 256
MOVED = 0.2
PAUSE = 2


class Gauge(NamedTuple):
    """What ``eta="auto"`` remembers from step to step."""

    L: jax.Array
    x: PyTree  # where L was measured
    y: PyTree
    k: jax.Array  # steps so far
    k_measured: jax.Array  # and at the last measurement
    growth: jax.Array  # of the last series
    probes: jax.Array  # Hessian-vector products of single samples that the last step spent on measuring


def init(eta: Eta, x0: PyTree, y0: PyTree) -> Gauge | None:
    if not isinstance(eta, Auto):
        return None
    unmeasured = jnp.array(jnp.inf, norm(y0).dtype)  # an infinite growth asks for a measurement
    none = jnp.zeros((), jnp.int32)
    return Gauge(jnp.zeros_like(unmeasured), x0, y0, none, none, unmeasured, none)


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
    last = gauge
    moved = (_moved(x, last.x) | _moved(y, last.y)) & (last.k > PAUSE * last.k_measured)
    due = grew(last.growth) | moved

    def keep():
        return last.L, last.x, last.y, last.k_measured, jnp.zeros_like(last.probes)

    def measure():
        L, samples = largest_eigenvalue(oracle, key, x, y, 1 if per_sample else S)
        at_least = jnp.where(jnp.isfinite(last.growth), (1 + last.growth) * last.L / eta.fraction, 0)
        L = jnp.maximum(L, jnp.where(grew(last.growth), at_least, 0))
        return where(_this_run(due), (L, x, y, last.k, jnp.full_like(last.probes, ITERATIONS * samples)), keep())

    L, here_x, here_y, k_measured, probes = jax.lax.cond(_any_run(due), measure, keep)
    gauge = Gauge(L, here_x, here_y, last.k + 1, k_measured, last.growth, probes)
    return eta.fraction / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), gauge


def note(gauge: Gauge | None, growth: jax.Array) -> Gauge | None:
    """Return the gauge after a series whose residual grew by ``growth``."""
    return None if gauge is None else gauge._replace(growth=growth.astype(gauge.growth.dtype))


def probes(gauge: Gauge | None) -> Scalar:
    return 0 if gauge is None else gauge.probes


@jax.custom_batching.custom_vmap
def _any_run(due: jax.Array) -> jax.Array:
    """Tell whether a measurement is due, under `jax.vmap` in any of the runs: a branch stays a branch there."""
    return due


@_any_run.def_vmap
def _any_of_many(axis_size: int, in_batched: list[bool], due: jax.Array) -> tuple[jax.Array, bool]:
    return _any_run(due.any(axis=0) if in_batched[0] else due), False


@jax.custom_batching.custom_vmap
def _this_run(due: jax.Array) -> jax.Array:
    """Tell whether this run is one of those that made a measurement due; without `jax.vmap` there is only this one."""
    return jnp.ones_like(due)


@_this_run.def_vmap
def _this_of_many(axis_size: int, in_batched: list[bool], due: jax.Array) -> tuple[jax.Array, bool]:
    return due, in_batched[0]


def largest_eigenvalue(
    oracle: Oracle, key: Key, x: PyTree, y: PyTree, S: int, iterations: int = ITERATIONS
) -> tuple[jax.Array, int]:
    """Return L of the inner Hessian by power iteration, and the number of samples it was measured on.

    It is the largest L of several batches of S samples, as many as make 256 samples.
    """
    each = size(jax.eval_shape(lambda k: oracle.draw_G(k, S), key))
    batches = max(1, SAMPLES // each)

    def on_one_batch(key):
        def once(_, carry):
            w, _ = carry
            Hw = oracle.hvp_G(x, y, oracle.draw_G(key, S), w)
            L = norm(Hw)
            return scale(1 / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), Hw), L

        start = signs_like(y)  # not drawn: a draw takes long to compile
        return jax.lax.fori_loop(0, iterations, once, (start, jnp.zeros_like(norm(start))))[1]

    return jax.vmap(on_one_batch)(jax.random.split(key, batches)).max(), batches * each


def _moved(here: PyTree, there: PyTree) -> jax.Array:
    """Tell whether |here - there| > MOVED |there|: the difference of the squares, as one product."""
    return vdot(axpy(-1 - MOVED, there, here), axpy(-1 + MOVED, there, here)) > 0
