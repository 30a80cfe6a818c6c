"""How batches are drawn: ``sampler(data, key, size) -> batch``."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from bilax.sampling import keys
from bilax.sampling.stored import Stored, size_of, take
from bilax.sparse import is_rows
from bilax.types import Key, PyTree

Sampler: TypeAlias = Callable[[PyTree, Key, int], PyTree]

# Each round of the shuffle leaves a slot where it is with probability 1/2, else moves it to a uniformly
# random place, so the chance that a slot was never moved is 2**-ROUNDS.
ROUNDS = 32


def iid(data: PyTree, key: Key, size: int) -> PyTree:
    """Draw with replacement: the samples are independent, as the theory assumes.

    A sample's number is the remainder of 32 random bits, so each of n samples has the chance 1/n up to a factor of
    1 ± n / 2^32. That is beyond detection, and three times cheaper than `jax.random.randint`.
    """
    index = jax.random.bits(key, (size,), jnp.uint32) % jnp.uint32(size_of(data))
    return take(data, index.astype(jnp.int32))


def epoch(data: PyTree, key: Key, size: int) -> PyTree:
    """Go through the shuffled data without replacement, and through a new shuffle after that.

    A stream is one endless sequence of shuffles; position t of it takes the entries from ``t * size`` on. A batch
    that reaches the end of a shuffle goes on with the next one, so no sample is left out, none is met twice
    in one pass, and every place of every batch is uniform over the samples. Different streams have
    different shuffles, so the batches of one step are independent of each other.
    """
    n = size_of(data)
    if size > n:
        raise ValueError(
            f"a batch of {size} samples was asked for, but the data hold {n}; the epoch sampler draws without "
            f"replacement. Use a batch size of at most {n}, or sampler='iid'."
        )
    return take(data, epoch_index(key, size, n))


def full(data: PyTree, key: Key, size: int) -> PyTree:
    """Take all of the data, whatever size is asked for: the deterministic limit of every method."""
    return data.everything() if isinstance(data, Stored) else data


@dataclass(frozen=True)
class Blocks:
    """Take a batch as one slice of data that were shuffled once: the fastest way.

    The data lie in a circle, in an order that ``seed`` decides and that is the same for all runs. A block starts at a
    uniformly random place of the circle, so every sample has the same chance and no block is short. With
    ``each_once``, the blocks of a pass lie side by side from a random place on, so that no sample is met twice in
    one pass; of n samples, the last ``n mod size`` before that place are left out of it.

    Samples that are neighbours come together each time: over all runs, a block is a draw without replacement, but the
    blocks of one run are those of one shuffle.
    """

    seed: int = 0
    each_once: bool = False

    def arrange(self, data: PyTree) -> tuple[PyTree, jax.Array]:
        """Return the data as they are laid out, and the numbers that the samples had before."""
        if isinstance(data, Stored):
            raise ValueError(
                "blocks are slices of a shuffled copy of the data in memory, and these are a source; take "
                "sampler='iid' or 'epoch'."
            )
        order = jnp.asarray(np.random.default_rng(self.seed).permutation(size_of(data)).astype(np.int32))
        return take(data, order), order

    def __call__(self, data: PyTree, key: Key, size: int) -> PyTree:
        n = size_of(data)
        if size > n:
            raise ValueError(
                f"a batch of {size} samples was asked for, but the data hold {n}; a block is cut out of them. Use a "
                f"batch size of at most {n}, or sampler='iid'."
            )
        return block(data, self.start(key, size, n), size)

    def start(self, key: Key, size: int, n: int) -> jax.Array:
        if not self.each_once:
            return jax.random.bits(key, (), jnp.uint32) % jnp.uint32(n)
        stream, position = keys.parts(key)
        passed, block = jnp.divmod(position, jnp.uint32(n // size))
        first = jax.random.bits(keys.at(stream, passed), (), jnp.uint32) % jnp.uint32(n)
        return (first + block * jnp.uint32(size)) % jnp.uint32(n)


SAMPLERS: dict[str, Sampler] = {
    "iid": iid,
    "epoch": epoch,
    "blocks": Blocks(),
    "block-epoch": Blocks(each_once=True),
    "full": full,
}
GATHERING = (iid, epoch)  # those that pick single samples


def resolve(sampler: str | Sampler) -> Sampler:
    if callable(sampler):
        try:
            inspect.signature(sampler).bind(0, 1, 2)
        except TypeError:
            told = getattr(sampler, "__name__", sampler)
            raise TypeError(
                f"a sampler is a function (data, key, size) -> batch; {told!r} takes other arguments."
            ) from None
        except ValueError:
            pass  # it has no signature
        return sampler
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise ValueError(
            f"unknown sampler {sampler!r}; choose one of {', '.join(map(repr, SAMPLERS))}, "
            "or pass a function (data, key, size) -> batch."
        )
    return SAMPLERS[sampler]


def sample_numbers(sampler: Sampler, n: int, order: jax.Array | None, key: Key, size: int) -> jax.Array:
    """Return the numbers, from 0 to n - 1, of the samples that ``sampler(data, key, size)`` takes from n samples,
    which lie in ``order``."""
    try:
        return sampler(jnp.arange(n, dtype=jnp.int32) if order is None else order, key, size)
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise TypeError(
            f"the sampler {getattr(sampler, '__name__', sampler)!r} cannot tell the numbers of its samples: given the "
            f"numbers themselves as data, it raised {type(error).__name__}: {error}. A sampler that looks into the "
            "data works with every method but those that ask for sample numbers."
        ) from None


def block(data: PyTree, start: jax.Array, size: int) -> PyTree:
    """Return ``size`` samples from ``start`` on, and on from the first one where the data end."""
    n = size_of(data)

    def around() -> PyTree:
        index = (start.astype(jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)) % jnp.uint32(n)
        return take(data, index.astype(jnp.int32))

    return jax.lax.cond(start <= n - size, lambda: rows_from(data, start.astype(jnp.int32), size), around)


def rows_from(data: PyTree, start: Any, length: int) -> PyTree:
    """Return ``length`` samples from ``start`` on, which must be there."""

    def rows(leaf: Any) -> Any:
        if is_rows(leaf):
            return leaf[start + jnp.arange(length)]
        return jax.lax.dynamic_slice_in_dim(leaf, start, length, allow_negative_indices=False)

    return jax.tree.map(rows, data, is_leaf=is_rows)


def epoch_index(key: Key, size: int, n: int) -> jax.Array:
    """Return the sample numbers of one batch of the stream of shuffles of ``range(n)``."""
    stream, position = keys.parts(key)
    shuffle, start = _divmod_product(position, size, n)
    slot = start + jnp.arange(size, dtype=jnp.uint32)
    ahead = slot >= n
    this_and_next = shuffle + jnp.arange(2, dtype=jnp.uint32)
    words = jax.vmap(lambda e: jax.random.bits(keys.at(stream, e), (ROUNDS, 2), jnp.uint32))(this_and_next)
    return _permute(jnp.where(ahead, slot - n, slot), ahead, words, n).astype(jnp.int32)


def _permute(slot: jax.Array, ahead: jax.Array, words: jax.Array, n: int) -> jax.Array:
    """Apply the swap-or-not shuffle (Hoang, Morris and Rogaway, 2012): O(batch), nothing of length n."""

    def one_round(r: Any, i: jax.Array) -> jax.Array:
        pivot = jnp.where(ahead, words[1, r, 0] % n, words[0, r, 0] % n)
        salt = jnp.where(ahead, words[1, r, 1], words[0, r, 1])
        partner = jnp.where(pivot >= i, pivot - i, pivot + n - i)
        swap = keys.mix(jnp.maximum(i, partner) ^ salt) & 1
        return jnp.where(swap, partner, i)

    return jax.lax.fori_loop(0, ROUNDS, one_round, slot)


def _divmod_product(position: jax.Array, size: int, n: int) -> tuple[jax.Array, jax.Array]:
    """Return divmod(position * size, n) in uint32 although the product may not fit, taking ``size`` bit by bit."""
    whole, rest = position // n, position % n
    quotient, remainder = jnp.zeros_like(position), jnp.zeros_like(position)
    for bit in f"{size:b}":
        doubled = 2 * remainder + (rest if bit == "1" else jnp.zeros_like(rest))
        quotient, remainder = 2 * quotient + doubled // n, doubled % n
    return whole * jnp.uint32(size) + quotient, remainder
