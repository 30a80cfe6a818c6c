"""Random keys that know which turn they belong to.

A step's key must be new at every step, so that batches are independent, and yet a sampler without
replacement has to know how far it has come through the data. Both follow from one idea: a key is a
pair (stream, turn). `jax.random.split` and `fold_in` derive new streams and keep the turn; drawing
numbers mixes both. The turn of step k is k. Nothing is remembered between steps, so the length of a
chunk or a restart cannot change what is drawn.

These are ordinary JAX typed keys (of an implementation of our own over Threefry): all of `jax.random`
works on them, and `jax.vmap` too.
"""

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

from bilax.types import Key, Scalar

_STREAM = "threefry2x32"


def _stream(data: jax.Array) -> Key:
    return jax.random.wrap_key_data(data[..., :2], impl=_STREAM)


def _join(stream: Key, turn: jax.Array) -> jax.Array:
    data = jax.random.key_data(stream)
    return jnp.concatenate([data, jnp.broadcast_to(turn, (*data.shape[:-1], 1))], axis=-1)


def _seed(seed: jax.Array) -> jax.Array:
    return _join(jax.random.key(seed, impl=_STREAM), jnp.zeros(1, jnp.uint32))


def _split(data: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return _join(jax.random.split(_stream(data), shape), data[2:])


def _fold_in(data: jax.Array, number: jax.Array | int) -> jax.Array:
    return _join(jax.random.fold_in(_stream(data), number), data[2:])


def _bits(data: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.bits(jax.random.fold_in(_stream(data), data[2]), shape, f"uint{bit_width}")


_IMPL = define_prng_impl(
    key_shape=(3,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="bilax", tag="bilax"
)


def root(seed: Scalar) -> Key:
    """Return the stream that everything in a run is drawn from."""
    return jax.random.key(seed, impl=_STREAM)


def at(stream: Key, turn: Scalar) -> Key:
    """Return the key of ``stream`` at ``turn``; ``solve`` gives step k the key ``at(root(seed), k)``."""
    turn = jnp.asarray(turn).astype(jnp.uint32)
    return jax.random.wrap_key_data(_join(stream, turn[None]), impl=_IMPL)


def parts(key: Key) -> tuple[Key, jax.Array]:
    """Return (stream, turn). A key that was not made by `at` is a stream at turn 0."""
    data = jax.random.key_data(key)
    if data.shape[-1] == 3:
        return _stream(data), data[..., 2]
    return key, jnp.zeros((), jnp.uint32)


def turns(key: Key, n: int) -> Key:
    """Return n keys of one stream for an inner loop of n passes: pass t of step k is turn ``n k + t``.

    Unlike `jax.random.split`, which opens a stream per pass, a sampler without replacement goes on
    through the data from one pass to the next.
    """
    stream, turn = parts(key)
    return jax.vmap(lambda t: at(stream, turn * jnp.uint32(n) + t))(jnp.arange(n, dtype=jnp.uint32))
