"""The matrix products of a step, of the same shapes and in the same order, and nothing else."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax.numerics.platforms import Jitted


class Product(NamedTuple):
    """A batch of ``rows`` samples times ``columns`` vectors (forward), or the transpose of one with the batch."""

    batch: int
    rows: int
    columns: int
    forward: bool


class Part(NamedTuple):
    products: list[Product]
    times: int = 1
    every: int = 1  # in one of so many steps


def gradient(batch, S, c):
    return [Product(batch, S, c, True), Product(batch, S, c, False)]


def estimate(S, c, Q):
    """Algorithm 3 at as many points as make c columns; the point and the direction are multiplied together."""
    factors = [p for j in range(Q) for p in (Product(2 + j, S, 2 * c, True), Product(2 + j, S, c, False))]
    return [*gradient(0, S, c), *factors, Product(1, S, 2 * c, True)]


def mrbo(S, Q, classes=10):
    return [Part([*gradient(Q + 2, S, 2 * classes), *estimate(S, 2 * classes, Q)])]


def vrbo(S1, S2, m, q, Q, classes=10):
    restart = [*gradient(Q + 2, S1, classes), *estimate(S1, classes, Q)]
    return [Part(restart, every=q), Part(mrbo(S2, Q, classes)[0].products, times=m + 2)]


def stocbio(S, D, Q, classes=10):
    return [Part(gradient(Q + 2, S, classes), times=D), Part(estimate(S, classes, Q))]


def flops(parts, features):
    return sum(2 * p.rows * features * p.columns * part.times / part.every for part in parts for p in part.products)


def program(parts, features, samples=None):
    """Return a jitted function of the number of steps.

    Each product waits for the one before: its smaller factor is scaled by 1 + s, where s is made of the last result
    and far below rounding. With ``samples``, each batch is gathered from a table of so many rows, as a step must.
    """
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    table = None if samples is None else normal(samples, features)
    fixed = [{p.batch: normal(p.rows, features) for p in part.products} for part in parts]
    smaller = {
        (i, p): normal(p.columns, features) if p.forward else normal(p.columns, p.rows)
        for i, part in enumerate(parts)
        for p in part.products
    }

    def gathered(products, table, turn):
        drawn = {}
        for p in products:
            number = jnp.arange(p.rows, dtype=jnp.uint32) + jnp.uint32(7919) * (turn * jnp.uint32(16) + p.batch)
            index = (number * jnp.uint32(2654435761)) % jnp.uint32(samples)  # scattered over the table
            drawn[p.batch] = table.at[index.astype(jnp.int32)].get(mode="promise_in_bounds")
        return drawn

    @Jitted  # as our steps are compiled
    def run(steps, table, fixed, smaller):
        def once(i, turn, s):
            batches = fixed[i] if table is None else gathered(parts[i].products, table, turn)
            for p in parts[i].products:
                factor, X = smaller[i, p] * (1 + s), batches[p.batch]
                s = 1e-30 * (factor @ X.T if p.forward else factor @ X)[0, 0]
            return s

        def step(k, s):
            for i, part in enumerate(parts):

                def repeated(s, i=i, part=part):
                    first = k * part.times
                    return jax.lax.fori_loop(0, part.times, lambda t, s: once(i, (first + t).astype(jnp.uint32), s), s)

                s = repeated(s) if part.every == 1 else jax.lax.cond(k % part.every == 0, repeated, lambda s: s, s)
            return s

        return jax.lax.fori_loop(0, steps, step, jnp.zeros((), jnp.float32))

    return lambda steps: jax.block_until_ready(run(steps, table, fixed, smaller))


def vectors(n, repeats=20):
    """Return a function that gives the seconds of v <- a + (1 - c)(v - b), x <- x - g v, with vectors of length n."""

    @Jitted
    def run(x, v, a, b):
        def step(_, carry):
            x, _, v = carry
            v = a + 0.9 * (v - b)
            return x - 0.1 * v, x, v

        return jax.lax.fori_loop(0, repeats, step, (x, x, v))

    zeros = [jnp.zeros(n, jnp.float32) for _ in range(4)]
    jax.block_until_ready(run(*zeros))

    def measure():
        tic = time.perf_counter()
        jax.block_until_ready(run(*zeros))
        return (time.perf_counter() - tic) / repeats

    return measure


def peak(size=2048):
    """Return a function that gives the floating-point operations per second of a large square product."""
    A = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.float32)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(A, A))

    def measure():
        tic = time.perf_counter()
        jax.block_until_ready(product(A, A))
        return 2 * size**3 / (time.perf_counter() - tic)

    return measure
