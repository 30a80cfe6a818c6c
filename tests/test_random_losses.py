"""Losses that take a key, and levels without data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bilax
from bilax.functions import Drawn
from bilax.oracle import make_oracle

DATA = np.random.default_rng(0).normal(size=(32, 3))


def dropout(x, y, batch, key):
    keep = 1.0 if key is None else jax.random.bernoulli(key, 0.5, y.shape) / 0.5
    return jnp.mean((batch @ (keep * y) - x[0]) ** 2) + 0.5 * jnp.sum(y**2)


def plain(x, y, batch):
    return jnp.mean((batch @ y - 1) ** 2) + 0.1 * jnp.sum(x**2)


def problem(inner=dropout, outer=plain, **options):
    data = {"outer_data": DATA[:16], "inner_data": DATA}
    return bilax.Problem(outer, inner, **{**data, **options}, x0=np.ones(1), y0=np.full(3, 0.1))


def test_a_key_comes_with_the_batch_and_changes_with_it():
    oracle = make_oracle(problem())
    x, y = jnp.ones(1), jnp.ones(3)
    batches = [oracle.draw_G(key, 8) for key in jax.random.split(jax.random.key(0), 20)]
    assert all(isinstance(batch, Drawn) and batch.bits.shape == (8, 2) for batch in batches)
    zeros = {int(jnp.sum(oracle.grad_G(x, y, batch) == y)) for batch in batches}  # where a weight is dropped
    assert len(zeros) > 1
    again = oracle.grad_G(x, y, oracle.draw_G(jax.random.split(jax.random.key(0), 20)[3], 8))
    np.testing.assert_array_equal(again, oracle.grad_G(x, y, batches[3]))


def test_without_a_key_on_all_data():
    told = bilax.solve(problem(), bilax.SOBA(gamma=0.01, rho=0.05), steps=20, every=10).history[0]
    assert told["inner_loss"] == pytest.approx(float(dropout(jnp.ones(1), jnp.full(3, 0.1), DATA, None)))


OVER_ALL = ("saba", "spaba", "srba")  # they keep a table of all samples, or go over them


@pytest.mark.parametrize("name", OVER_ALL)
def test_a_method_that_needs_all_samples_alike_refuses_a_random_loss(name):
    with pytest.raises(TypeError, match="inner_loss takes a key"):
        bilax.solve(problem(), bilax.ALGORITHMS[name](), steps=3)


@pytest.mark.parametrize("name", sorted(set(bilax.ALGORITHMS) - set(OVER_ALL)))
@pytest.mark.slow
def test_every_other_method_takes_a_random_loss(name):
    run = bilax.iterate(problem(), bilax.ALGORITHMS[name](), steps=3, seed=1)
    assert np.isfinite(run.state.x).all()
    other = bilax.iterate(
        problem(lambda x, y, batch: dropout(x, y, batch, None)), bilax.ALGORITHMS[name](), steps=3, seed=1
    )
    assert not np.array_equal(run.state.y, other.state.y)


def test_both_points_of_a_recursion_see_the_same_key():
    """A loss that is noise alone: MRBO's estimates do not differ between two points, so their difference is 0."""

    def noise(x, y, batch, key):
        return jnp.sum(y * (jnp.zeros(3) if key is None else jax.random.normal(key, (3,)))) + 0.5 * jnp.sum(y**2)

    oracle = make_oracle(problem(noise))
    zeta = oracle.draw_G(jax.random.key(1), 4)
    here, there = (oracle.grad_G(jnp.ones(1), y, zeta) for y in (jnp.zeros(3), jnp.ones(3)))
    np.testing.assert_allclose(there - here, np.ones(3), rtol=1e-12)


def test_the_key_fits_sums_of_samples_and_fixed_eta():
    for algorithm in (bilax.VRBO(S1=8, S2=4, m=2, per_sample=True, eta=0.01), bilax.MRBO(eta=0.01, S=4)):
        assert np.isfinite(bilax.solve(problem(), algorithm, steps=4).x).all()


@pytest.mark.parametrize("sampler", ["iid", "epoch", "blocks", "full"])
def test_a_level_without_data(sampler):
    """The inner loss has none: y*(x) = x, so Phi is the outer loss at x."""

    def inner(x, y, batch):
        assert batch is None
        return 0.5 * jnp.sum((y - x) ** 2)

    one = problem(inner, lambda x, y, batch: jnp.mean((y - batch) ** 2), inner_data=None)
    found = bilax.solve(bilax.Problem(**{**vars(one), "x0": np.zeros(3), "y0": np.zeros(3)}),
                        bilax.AIDCG(alpha=0.1, beta=0.5, T=20, S=16), steps=100, sampler=sampler)  # fmt: skip
    np.testing.assert_allclose(found.x, DATA[:16].mean(0), atol=0.3 if sampler in ("iid", "blocks") else 1e-2)


def test_both_levels_without_data_but_with_a_key():
    one = bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.sum((y - 1) ** 2),
        inner_loss=lambda x, y, batch, key: (
            0.5 * jnp.sum((y - x) ** 2) + (0 if key is None else 0.01 * jnp.sum(y * jax.random.normal(key, y.shape)))
        ),
        outer_data=None,
        inner_data=None,
        x0=np.zeros(2),
        y0=np.zeros(2),
    )
    found = bilax.solve(one, bilax.MRBO(gamma=0.5, lam=0.5), steps=400)
    np.testing.assert_allclose(found.x, 1, atol=0.05)
