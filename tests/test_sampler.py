"""Batches: independent where the theory says so, each sample once per pass where the user says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bilax.sampling import keys
from bilax.sampling.samplers import SAMPLERS, Blocks, _divmod_product, block, epoch, epoch_index, full, iid, resolve
from bilax.sparse import Rows


def stream_of(n, size, positions, seed=0, start=0):
    draw = jax.jit(lambda t: epoch_index(keys.at(keys.root(seed), t), size, n))
    return np.concatenate([draw(t) for t in range(start, start + positions)])


@settings(max_examples=6, deadline=None)
@given(n=st.integers(1, 40), data=st.data(), seed=st.integers(0, 1000))
def test_epoch_meets_every_sample_once_per_pass(n, data, seed):
    size = data.draw(st.integers(1, n))
    stream = stream_of(n, size, positions=3 * n, seed=seed)
    for start in range(0, len(stream) - n + 1, n):
        assert sorted(stream[start : start + n]) == list(range(n))


def test_epoch_shuffles_differ_and_batches_without_overlap_of_shuffles_hold_no_sample_twice():
    stream = stream_of(1000, 1000, 4).reshape(4, 1000)
    assert not any((stream[0] == other).mean() > 0.01 for other in stream[1:])
    assert all(len(set(row)) == 1000 for row in stream)


def test_epoch_is_unbiased_also_where_a_batch_crosses_into_the_next_shuffle():
    """n = 10, size = 4: position 2 holds two samples of one shuffle and two of the next. Each place is uniform."""
    streams = jax.vmap(lambda seed: epoch_index(keys.at(keys.root(seed), 2), 4, 10))(jnp.arange(20_000))
    for place in range(4):
        counts = np.bincount(streams[:, place], minlength=10)
        chi2 = ((counts - 2000) ** 2 / 2000).sum()
        assert chi2 < 33.7  # 9 degrees of freedom: exceeded once in 10,000


def test_epoch_pairs_are_uniform():
    pairs = jax.vmap(lambda seed: epoch_index(keys.at(keys.root(seed), 0), 2, 6))(jnp.arange(30_000))
    counts = np.bincount(pairs[:, 0] * 6 + pairs[:, 1], minlength=36).reshape(6, 6)
    assert (np.diag(counts) == 0).all()
    off = counts[~np.eye(6, dtype=bool)]
    assert ((off - 1000) ** 2 / 1000).sum() < 66  # 29 degrees of freedom: exceeded once in 10,000


def test_epoch_streams_of_one_step_are_different():
    a, b = jax.random.split(keys.at(keys.root(0), 3))
    assert (epoch_index(a, 500, 1000) == epoch_index(b, 500, 1000)).mean() < 0.05


def test_inner_passes_go_on_through_the_data():
    """Pass t of step k has the position n k + t: an inner loop of 3 passes over 4 steps walks through 12 batches in order."""
    per_step = [keys.for_loop(keys.at(keys.root(0), k), 3) for k in range(4)]
    batches = np.concatenate([np.asarray(epoch_index(key, 5, 30)) for ks in per_step for key in ks])
    assert sorted(batches[:30]) == list(range(30))
    assert sorted(batches[30:]) == list(range(30))


@settings(max_examples=50, deadline=None)
@given(position=st.integers(0, 2**32 - 1), size=st.integers(1, 10**6), extra=st.integers(0, 10**6))
def test_positions_do_not_overflow(position, size, extra):
    n = size + extra
    quotient, remainder = _divmod_product(jnp.uint32(position), size, n)
    assert int(remainder) == position * size % n
    assert int(quotient) == (position * size // n) % 2**32


def test_iid_is_uniform_with_replacement():
    index = iid(jnp.arange(10), keys.at(keys.root(1), 5), 50_000)
    counts = np.bincount(index, minlength=10)
    assert ((counts - 5000) ** 2 / 5000).sum() < 33.7
    assert len(set(np.asarray(iid(jnp.arange(10), keys.root(0), 10)))) < 10


def test_iid_batches_of_different_positions_and_streams_differ():
    draws = [iid(jnp.arange(10**6), keys.at(keys.root(s), t), 8) for s in range(3) for t in range(3)]
    assert len({tuple(np.asarray(d)) for d in draws}) == 9


def test_full_is_everything():
    data = {"a": jnp.arange(5), "b": jnp.ones((5, 2))}
    assert full(data, keys.root(0), 2) is data


def test_leaves_stay_together():
    data = {"a": jnp.arange(50), "b": 2 * jnp.arange(50)[:, None]}
    for sampler in (iid, epoch):
        batch = sampler(data, keys.at(keys.root(0), 1), 20)
        np.testing.assert_array_equal(2 * batch["a"], batch["b"][:, 0])


def test_a_plain_jax_key_is_a_stream_at_position_0():
    plain = jax.random.key(4)
    np.testing.assert_array_equal(epoch_index(plain, 5, 20), epoch_index(keys.at(plain, 0), 5, 20))


def test_keys_work_with_all_of_jax_random():
    key = keys.at(keys.root(0), 7)
    assert jax.random.normal(key, (3,)).shape == (3,)
    assert jax.random.split(key, 4).shape == (4,)
    assert jax.random.permutation(jax.random.fold_in(key, 1), 6).shape == (6,)
    assert int(keys.parts(jax.random.split(key)[1])[1]) == 7


def test_bits_are_those_of_jax():
    """What is drawn at a position is what JAX draws from the stream that the position derives."""
    key = keys.at(keys.root(5), 3)
    for mine in (key, jax.random.fold_in(key, 9), jax.random.split(key, (2, 3))[1, 2]):
        plain, _ = keys.parts(jax.random.fold_in(mine, 3))
        for dtype in (jnp.uint8, jnp.uint32, jnp.uint64):
            drawn = [jax.random.bits(k, (7, 5), dtype) for k in (mine, plain)]
            np.testing.assert_array_equal(*drawn)


def words(key):
    """Return the 64 bits of the stream of every key as one number."""
    data = np.asarray(jax.random.key_data(key)).astype(np.uint64)
    return data[..., 0] << np.uint64(32) | data[..., 1]


def test_splitting_is_folding_in_the_numbers_from_0_on():
    key = keys.at(keys.root(5), 3)
    folded = [words(jax.random.fold_in(key, i)) for i in range(6)]
    np.testing.assert_array_equal(words(jax.random.split(key, (2, 3))).ravel(), folded)


@pytest.mark.slow
def test_no_two_streams_meet():
    """A million grandchildren of seeds that resemble each other, and a million positions of one stream."""
    split = jax.vmap(lambda key: jax.random.split(key, 64))
    children = split(jax.vmap(lambda seed: keys.at(keys.root(seed), 0))(jnp.arange(256)))
    grandchildren = split(children.ravel())
    positions = jax.vmap(lambda t: jax.random.fold_in(keys.at(keys.root(0), 0), t))(jnp.arange(10**6))
    for streams in (children, grandchildren, positions):
        assert len(np.unique(words(streams))) == streams.size


def test_every_bit_of_a_stream_depends_on_every_bit_of_its_number_and_of_its_parent():
    rng = np.random.default_rng(0)
    child = jax.jit(jax.vmap(lambda data, n: jax.random.fold_in(jax.random.wrap_key_data(data, impl=keys._IMPL), n)))
    parents, numbers = rng.integers(2**32, size=(2000, 3), dtype=np.uint32), np.arange(2000, dtype=np.uint32)
    before = words(child(parents, numbers))
    for bit in range(96):
        flip = np.zeros(3, np.uint32)
        flip[bit // 32] = 1 << (bit % 32)
        after = words(child(parents ^ flip * np.array([1, 1, 0], np.uint32), numbers ^ flip[2]))
        changed = np.unpackbits((before ^ after)[:, None].view(np.uint8), axis=1).mean(axis=0)
        assert (abs(changed - 0.5) < 0.06).all()  # more than five standard deviations


def test_draws_of_neighbours_are_independent():
    """The first numbers that seeds, positions and siblings draw: all pairs of values are equally frequent."""

    def first(seed, position, child):
        key = jax.random.split(keys.at(keys.root(seed), position), 8)[child]
        return jax.random.bits(key, (), jnp.uint32) % 6

    seeds = jnp.arange(36_000)
    here = jax.vmap(lambda s: first(s, 0, 0))(seeds)
    for neighbour in (lambda s: first(s + 1, 0, 0), lambda s: first(s, 1, 0), lambda s: first(s, 0, 1)):
        counts = np.bincount(here * 6 + jax.vmap(neighbour)(seeds), minlength=36)
        assert ((counts - 1000) ** 2 / 1000).sum() < 74  # 35 degrees of freedom: exceeded once in 7,700


def test_unknown_sampler():
    with pytest.raises(
        ValueError, match=r"unknown sampler 'random'; choose one of 'iid', 'epoch', 'blocks', 'block-epoch', 'full'"
    ):
        resolve("random")
    assert all(resolve(name) is sampler for name, sampler in SAMPLERS.items())
    assert resolve(iid) is iid


def test_epoch_refuses_a_batch_larger_than_the_data():
    with pytest.raises(ValueError, match=r"a batch of 11 samples was asked for, but the data hold 10"):
        epoch(jnp.arange(10), keys.root(0), 11)


@pytest.mark.parametrize(("n", "size"), [(12, 4), (13, 4), (7, 7), (5, 1), (9, 5)])
def test_blocks_are_unbiased(n, size):
    """By enumeration: over all places where a block can start, every sample is met equally often, whatever is left over."""
    starts = jnp.arange(n, dtype=jnp.uint32)
    one = jax.jit(lambda start: block(jnp.arange(n), start, size))
    blocks = np.stack([one(start) for start in starts])
    assert (np.bincount(blocks.ravel(), minlength=n) == size).all()
    np.testing.assert_array_equal(blocks, jax.vmap(lambda start: block(jnp.arange(n), start, size))(starts))


@pytest.mark.parametrize("each_once", [False, True])
def test_blocks_start_anywhere(each_once):
    sampler = Blocks(each_once=each_once)
    for position in (0, 1, 7):
        starts = jax.vmap(lambda seed, at=position: sampler.start(keys.at(keys.root(seed), at), 3, 10))(
            jnp.arange(20_000)
        )
        counts = np.bincount(starts, minlength=10)
        assert ((counts - 2000) ** 2 / 2000).sum() < 33.7  # 9 degrees of freedom: exceeded once in 10,000


@pytest.mark.parametrize(("n", "size"), [(12, 4), (13, 4), (9, 9), (20, 1)])
def test_block_epochs_meet_no_sample_twice_in_a_pass(n, size):
    draw = jax.jit(lambda t: Blocks(each_once=True)(jnp.arange(n), keys.at(keys.root(0), t), size))
    batches = np.stack([draw(t) for t in range(50 * (n // size))]).reshape(50, -1)
    for once in batches:
        assert len(set(once)) == n - n % size
    assert len({tuple(once) for once in batches}) > 1
    assert (np.bincount(batches.ravel(), minlength=n) > 0).all()  # nobody is left out of all passes


def test_blocks_are_laid_out_once_and_remember_the_numbers():
    data = {"a": jnp.arange(50), "b": jnp.arange(100.0).reshape(50, 2)}
    arranged, order = Blocks(seed=3).arrange(data)
    np.testing.assert_array_equal(arranged["a"], order)
    np.testing.assert_array_equal(arranged["b"], data["b"][order])
    assert sorted(np.asarray(order)) == list(range(50))
    assert not (order == Blocks(seed=4).arrange(data)[1]).all()
    batch = Blocks(seed=3)(arranged, keys.at(keys.root(0), 0), 8)
    np.testing.assert_array_equal(batch["b"], data["b"][batch["a"]])


def test_a_block_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="a batch of 6 samples was asked for, but the data hold 5"):
        Blocks()(jnp.arange(5), keys.root(0), 6)


def test_sparse_rows_in_blocks():
    dense = np.diag(np.arange(1.0, 11))
    rows = Rows.from_scipy(scipy.sparse.csr_array(dense))
    arranged, order = Blocks().arrange(rows)
    for start in (0, 4, 8):
        batch = block(arranged, jnp.uint32(start), 4)
        np.testing.assert_array_equal(batch @ jnp.eye(10), dense[order[(start + np.arange(4)) % 10]])
