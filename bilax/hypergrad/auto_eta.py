"""The largest eigenvalue L of the inner Hessian, and the step eta of a Neumann series that is safe for it.

A Neumann series converges to the inverse Hessian only if eta < 1/L (the paper's condition); its residual grows
once eta > 2/L. ``eta="auto"`` uses 0.9/L, with L the largest over batches of the method's own size, as many as make
256 samples: a factor made of a single sample must be safe for the most curved sample. L changes as x and y move, so
it is measured again

- when x or y has moved by more than a fifth of its norm since the last measurement, and more steps have passed
  since then than before it (so the measurements get rarer and cost little in the long run), or
- when the last series grew; L is then at least (1 + growth)/eta, whatever power iteration finds.

All measurements together take at most a tenth of the work of a run of 1,000 steps or more: one is as thorough as half
of that allows, and all but the first wait until they can be afforded. A series that grows meanwhile still raises L.

Both tests look only at what is carried from step to step, so neither the chunk length nor a restart changes what is
done. Methods know nothing of this: the loop measures, and hands them a number.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import grew
from bilax.numerics.layout import turn, turn_back
from bilax.numerics.tree import axpy, norm, real, scale, scattered_like, size, vdot, where
from bilax.oracle import Oracle
from bilax.types import Key, PyTree, Scalar

ITERATIONS = 20
SAMPLES = 256
MOVED = 0.2
PAUSE = 2
SHARE, LONG = 0.1, 1000  # of the work of so many steps, at least, may go into measurements


class Curvature(NamedTuple):
    """What is remembered of the last measurement."""

    L: jax.Array
    x: PyTree  # where L was measured
    y: PyTree
    k: jax.Array  # and when
    growth: jax.Array  # of the last series
    spent: jax.Array  # products with a batch so far, in all measurements


def unmeasured(x0: PyTree, y0: PyTree) -> Curvature:
    infinite = jnp.array(jnp.inf, norm(y0).dtype)  # an infinite growth asks for a measurement
    return Curvature(jnp.zeros_like(infinite), x0, y0, jnp.zeros((), jnp.int32), infinite, jnp.zeros((), float))


def update(
    last: Curvature,
    fraction: Scalar,
    oracle: Oracle,
    key: Key,
    k: Scalar,
    x: PyTree,
    y: PyTree,
    S: int,
    work: float = math.inf,
) -> tuple[Curvature, jax.Array]:
    """Return the curvature to use at (x, y), measured anew if that is due, and the Hessian-vector products spent.

    ``work`` is that of a step: how many batches of S samples it evaluates.
    """
    runs = runs_of(oracle, key, S, work)
    products = ITERATIONS * runs
    affordable = last.spent + float(products) <= SHARE * work * jnp.maximum(real(k), float(LONG))
    moved = (_moved(x, last.x) | _moved(y, last.y)) & (k > PAUSE * last.k)
    due = (grew(last.growth) | moved) & (affordable | jnp.isinf(last.growth))
    at_least = jnp.where(jnp.isfinite(last.growth), (1 + last.growth) * last.L / fraction, 0)
    at_least = jnp.where(grew(last.growth), at_least, 0).astype(last.L.dtype)

    def keep():
        return last._replace(L=jnp.maximum(last.L, at_least)), jnp.zeros((), jnp.int32)

    def measure():
        L, samples = largest_eigenvalue(oracle, key, x, y, S, runs=runs)
        now = jnp.asarray(k, jnp.int32)
        measured = Curvature(jnp.maximum(L, at_least), x, y, now, last.growth, last.spent + float(products))
        return where(_this_run(due), (measured, jnp.full((), ITERATIONS * samples, jnp.int32)), keep())

    return jax.lax.cond(_any_run(due), measure, keep)


def runs_of(oracle: Oracle, key: Key, S: int, work: float = math.inf) -> int:
    """Return on how many batches L is measured: as many as make 256 samples, or as steps of this work can bear."""
    each = size(jax.eval_shape(lambda k: oracle.draw_G(k, S), key))
    bearable = SHARE * LONG * work / 2 / ITERATIONS
    return int(max(2, min(SAMPLES // each, bearable)))  # at least one from each of two starts


def safe_eta(curvature: Curvature, fraction: Scalar) -> jax.Array:
    """Return ``fraction / L``; where there is no curvature, as if L were 1, since no eta is too large then."""
    L = curvature.L
    return fraction / jnp.where(L > jnp.finfo(L.dtype).tiny ** 0.5, L, 1)


def after_series(curvature: Curvature, growth: Scalar) -> Curvature:
    """Return the curvature after a series whose residual grew by ``growth``."""
    return curvature._replace(growth=jnp.asarray(growth, curvature.growth.dtype))


@jax.custom_batching.custom_vmap
def _any_run(due: jax.Array) -> jax.Array:
    """Tell whether a measurement is due; under `jax.vmap`, in any of the runs, so that a branch stays a branch."""
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
    oracle: Oracle, key: Key, x: PyTree, y: PyTree, S: int, iterations: int = ITERATIONS, runs: int | None = None
) -> tuple[jax.Array, int]:
    """Return L of the inner Hessian by power iteration, and the number of samples it was measured on.

    It is the largest L of several batches of S samples, by default as many as make 256 samples.
    """
    each = size(jax.eval_shape(lambda k: oracle.draw_G(k, S), key))
    runs = runs_of(oracle, key, S) if runs is None else runs  # half of them from one start, half from the other
    batches = max(1, min(runs, SAMPLES // each))

    def on_one_batch(key, start):
        def once(_, carry):
            w, _ = carry
            Hw = oracle.hvp_G(x, y, oracle.draw_G(key, S), w)
            L = norm(Hw)
            return scale(1 / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), Hw), L

        return jax.lax.fori_loop(0, iterations, once, (start, jnp.zeros_like(norm(start))))[1]

    # Not drawn: a draw takes long to compile. What one start is blind to, the other one sees.
    # They are the same in whichever order y is kept.
    two = (turn(scattered_like(turn_back(y), n), like=y) for n in (0, 1))
    starts = jax.tree.map(lambda *both: jnp.stack(both)[jnp.arange(runs) % 2], *two)
    each_key = jax.random.split(key, batches)[jnp.arange(runs) % batches]
    return jax.vmap(on_one_batch)(each_key, starts).max(), runs * each


def _moved(here: PyTree, there: PyTree) -> jax.Array:
    """Tell whether |here - there| > MOVED |there|: the difference of the squares, as one product."""
    return vdot(axpy(-1 - MOVED, there, here), axpy(-1 + MOVED, there, here)) > 0
