"""The largest eigenvalue L of the inner Hessian, and the step eta of a Neumann series that is safe for it.

A Neumann series converges to the inverse Hessian only if eta < 1/L (the paper's condition); its residual grows
once eta > 2/L. ``eta="auto"`` uses 0.9/L, with L the largest over batches of the method's own size, as many as make
256 samples: a factor made of a single sample must be safe for the most curved sample. L changes as x and y move, so
it is measured again

- when x or y has moved by more than about a fifth of its norm since the last measurement, and more steps have passed
  since then than before it (so the measurements get rarer and cost little in the long run), or
- when the last series grew; L is then at least (1 + growth)/eta, whatever power iteration finds, up to four times what
  it found last: beyond that, no curvature that was measured explains it, and it is negative, as near a saddle.

All measurements together take at most 2 % of the calls of a run of 1,000 steps or more: one is as thorough as
half of that allows, and all but the first wait until they can be afforded. A series that grows still raises L.

Both tests look only at what is carried from step to step, so neither the chunk length nor a restart changes what is
done. Methods know nothing of this: the loop measures, and hands them a number.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bilax.hypergrad.neumann import grew
from bilax.numerics.layout import turn, turn_back
from bilax.numerics.tree import norm, real, scale, scattered_like, size, where
from bilax.oracle import Oracle
from bilax.types import Key, PyTree, Scalar

ITERATIONS = 20  # on a batch, wherever L is asked for but
LOOK = 10  # in a run: half as many miss L by a few per cent, and twice as many batches tell far more of it
SAMPLES = 256
MOVED = 0.2
SUMS = 64
PAUSE = 2
EXPLAINED = 4.0  # times the L that was measured, at most, is L raised for series that grow
LOOKS = 4  # at how far x and y have moved, while k doubles; looking at every step would cost more than measuring
SHARE, LONG = 0.02, 1000  # of the work of so many steps, at least, may go into measurements


class Curvature(NamedTuple):
    """What is remembered of the last measurement."""

    L: jax.Array
    x: jax.Array  # where L was measured: a sketch of it
    y: jax.Array
    k: jax.Array  # and when
    growth: jax.Array  # of the last series
    spent: jax.Array  # products with a batch so far, in all measurements
    measured: jax.Array  # by power iteration, the last time


@jax.jit  # one small program in place of twenty
def unmeasured(x0: PyTree, y0: PyTree) -> Curvature:
    infinite = jnp.array(jnp.inf, norm(y0).dtype)  # an infinite growth asks for a measurement
    never = jnp.zeros((), jnp.int32)
    none = jnp.zeros_like(infinite)
    return Curvature(none, _sketch(x0), _sketch(y0), never, infinite, jnp.zeros((), float), none)


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
    affordable, looking = _affordable(last, k, runs, work), _looking(last, k)
    may_be_due = (grew(last.growth) | looking) & (affordable | jnp.isinf(last.growth))
    at_least = jnp.where(jnp.isfinite(last.growth), (1 + last.growth) * last.L / fraction, 0)
    at_least = jnp.minimum(at_least, jnp.maximum(last.L, EXPLAINED * last.measured))
    at_least = jnp.where(grew(last.growth), at_least, 0).astype(last.L.dtype)

    def keep():
        return last._replace(L=jnp.maximum(last.L, at_least)), jnp.zeros((), jnp.int32)

    def look():
        due = grew(last.growth) | (looking & (_moved(x, last.x) | _moved(y, last.y)))
        due &= affordable | jnp.isinf(last.growth)  # again: of many runs under vmap, each for itself

        def measure():
            L, samples = largest_eigenvalue(oracle, key, x, y, S, LOOK, runs)
            now = jnp.asarray(k, jnp.int32)
            here = jnp.maximum(L, at_least), _sketch(x), _sketch(y)
            measured = Curvature(*here, now, last.growth, last.spent + float(LOOK * runs), L)
            return where(_this_run(due), (measured, jnp.full((), LOOK * samples, jnp.int32)), keep())

        return jax.lax.cond(_any_run(due), measure, keep)

    return jax.lax.cond(_any_run(may_be_due), look, keep)


def next_look(k: Scalar) -> jax.Array:
    """Return the first k after this one before which `update` may do anything, unless a series grows."""
    apart = _apart(k)
    return apart * (jnp.asarray(k, jnp.int32) // apart + 1)


def _affordable(last: Curvature, k: Scalar, runs: int, work: float) -> jax.Array:
    return last.spent + float(LOOK * runs) <= SHARE * work * jnp.maximum(real(k), float(LONG))


def _looking(last: Curvature, k: Scalar) -> jax.Array:
    return (k % _apart(k) == 0) & (k > PAUSE * last.k)


def _apart(k: Scalar) -> jax.Array:
    octave = 1 << (31 - jax.lax.clz(jnp.maximum(jnp.asarray(k, jnp.int32), 1)))  # the power of two below k, or k itself
    return jnp.maximum(octave // LOOKS, 1)


def runs_of(oracle: Oracle, key: Key, S: int, work: float = math.inf) -> int:
    """Return on how many batches L is measured: as many as make 256 samples, or as steps of this work can bear."""
    each = size(jax.eval_shape(lambda k: oracle.draw_G(k, S), key))
    bearable = SHARE * LONG * work / 2 / LOOK
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
        batch = oracle.draw_G(key, S)

        def once(_, carry):
            w, _ = carry
            Hw = oracle.hvp_G(x, y, batch, w)
            L = norm(Hw)
            return scale(1 / jnp.maximum(L, jnp.finfo(L.dtype).tiny ** 0.5), Hw), L

        return jax.lax.fori_loop(0, iterations, once, (start, jnp.zeros_like(norm(start))))[1]

    # Not drawn: a draw takes long to compile. What one start is blind to, the other one sees.
    # They are the same in whichever order y is kept.
    two = (turn(scattered_like(turn_back(y), n), like=y) for n in (0, 1))
    starts = jax.tree.map(lambda *both: jnp.stack(both)[jnp.arange(runs) % 2], *two)
    each_key = jax.random.split(key, batches)[jnp.arange(runs) % batches]
    return jax.vmap(on_one_batch)(each_key, starts).max(), runs * each


def _moved(here: PyTree, there: jax.Array) -> jax.Array:
    """Tell whether x is further than MOVED |x| from where it was."""
    return norm(_sketch(here) - there) > MOVED * norm(there)


def _sketch(x: PyTree) -> jax.Array:
    """Return 64 sums of the numbers in x, each with a sign as if at random.

    Their distance is about that of the points, and to carry both points along costs more than many a step.
    """
    sums = []
    for leaf in jax.tree.leaves(turn_back(x)):
        rows = jnp.pad(real(leaf).ravel(), (0, -leaf.size % SUMS)).reshape(SUMS, -1)  # spread, each device sums its own
        sums.append(jnp.where(_coins(rows.size).reshape(rows.shape), rows, -rows).sum(1))
    return sum(sums[1:], sums[0])


def _coins(n: int) -> jax.Array:
    """Return the highest bits of hashes of 0, 1, 2, ...; half as dear as `scattered_like`."""
    h = jax.lax.iota(jnp.uint32, n) * jnp.uint32(0x9E3779B1)
    return (h ^ (h >> 15)) * jnp.uint32(0x85EBCA77) > 0x7FFFFFFF
