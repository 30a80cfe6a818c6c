"""Random keys that know how far they have come.

A step's key must be new at every step, so that batches are independent, and yet a sampler without
replacement has to know how far it has come through the data. Both follow from one idea: a key is a
pair (stream, position). `jax.random.split` and `fold_in` derive new streams and keep the position;
numbers are drawn from the stream that the position derives. The position of step k is k. Nothing is
remembered between steps, so the length of a chunk or a restart cannot change what is drawn.

These are ordinary JAX typed keys (of an implementation of our own over Threefry): all of `jax.random`
works on them, and `jax.vmap` too.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from bilax.numerics.platforms import kept_apart
from bilax.types import Key, Scalar

_STREAM = "threefry2x32"


def _stream(data: jax.Array) -> Key:
    return jax.random.wrap_key_data(data[..., :2], impl=_STREAM)


def _join(stream: Key, position: jax.Array) -> jax.Array:
    data = jax.random.key_data(stream)
    return jnp.concatenate([data, jnp.broadcast_to(position, (*data.shape[:-1], 1))], axis=-1)


def _seed(seed: jax.Array) -> jax.Array:
    return _join(jax.random.key(seed, impl=_STREAM), jnp.zeros(1, jnp.uint32))


def _split(data: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    pairs = _child(data, _numbers(shape))
    return jnp.concatenate([pairs, jnp.broadcast_to(data[2], (*shape, 1))], axis=-1)


def _fold_in(data: jax.Array, number: jax.Array | int) -> jax.Array:
    return jnp.concatenate([_child(data, jnp.asarray(number).astype(jnp.uint32)), data[2:]])


def _bits(data: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    at_position = _child(data, data[2])
    if bit_width != 32:
        return jax.random.bits(_stream(at_position), shape, f"uint{bit_width}")
    first, second = _threefry(at_position, _numbers(shape))
    return first ^ second


def _numbers(shape: tuple[int, ...]) -> jax.Array:
    return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)


def _child(stream: jax.Array, number: jax.Array) -> jax.Array:
    """Return the streams that a stream has under these numbers."""
    # Without the barrier, each stream would be computed again for every number that is drawn.
    return kept_apart(jnp.stack(_derive(stream, number), axis=-1))


@jax.jit  # so that it is traced once for each shape, like _threefry
def _derive(stream: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mix a number into the two words of a stream.

    Different numbers give different streams, and so do different streams under one number: each line can be undone.
    Only the numbers that are drawn need to be of cipher quality; a cipher here would take longer to compile.
    """
    a, b = stream[0], stream[1]
    n = (number + jnp.uint32(1)) * jnp.uint32(0x9E3779B1)
    b = b + mix(a ^ n)
    a = a + mix(b + n)
    b = b + mix(a)
    return a, b


def mix(h: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: every input bit reaches every output bit, and no two inputs share an output."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


@jax.jit
def _threefry(key: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Encrypt numbers below 2^32 with Threefry-2x32 of 20 rounds (Salmon et al., 2011): the bits of `jax.random`.

    JAX compiles the rounds as a loop on a CPU, which takes ten times as long as this for a small batch.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    a, b = jnp.broadcast_to(keys[0], number.shape), number + keys[1]
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = a + b
            b = ((b << distance) | (b >> (32 - distance))) ^ a
        a, b = a + keys[(group + 1) % 3], b + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return a, b


_IMPL = define_prng_impl(
    key_shape=(3,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="bilax", tag="bilax"
)


def root(seed: Scalar) -> Key:
    """Return the stream that everything in a run is drawn from."""
    return jax.random.key(seed, impl=_STREAM)


def at(stream: Key, position: Scalar) -> Key:
    """Return the key of ``stream`` at ``position``; ``solve`` gives step k the key ``at(root(seed), k)``."""
    position = jnp.asarray(position).astype(jnp.uint32)
    return jax.random.wrap_key_data(_join(stream, position[None]), impl=_IMPL)


def parts(key: Key) -> tuple[Key, jax.Array]:
    """Return (stream, position). A key that was not made by `at` is a stream at position 0."""
    data = jax.random.key_data(key)
    if data.shape[-1] == 3:
        return _stream(data), data[..., 2]
    return key, jnp.zeros((), jnp.uint32)


def for_loop(key: Key, n: int) -> Key:
    """Return n keys of one stream for an inner loop of n passes: pass t of step k has the position ``n k + t``.

    With them a sampler without replacement goes on through the data from one pass to the next;
    `jax.random.split` would open a new stream for each pass.
    """
    stream, position = parts(key)
    return jax.vmap(lambda t: at(stream, position * jnp.uint32(n) + t))(jnp.arange(n, dtype=jnp.uint32))


def checked_seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2**32 - 1; got {seed!r}.")
    return int(seed)
