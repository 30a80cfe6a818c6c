"""A sweep: the same iterates as its members, one compilation, however they are run."""

import jax
import numpy as np
import pytest

from bilax import MRBO, VRBO, Problem, iterate, sweep, sweeps
from bilax.problems import quadratic

PROBLEM = quadratic().problem


def settings(count, **same):
    return [MRBO(gamma=gamma, lam=0.3, Q=2, eta=0.3, **same) for gamma in np.linspace(0.01, 0.1, count)]


@pytest.fixture(scope="module")
def members():
    """Five settings with two seeds, each by itself."""
    alone = jax.jit(lambda setting, seed: iterate(PROBLEM, setting, steps=7, seed=seed))
    return [[alone(setting, np.uint32(seed)) for seed in (3, 8)] for setting in settings(5, S=4)]


@pytest.mark.parametrize(("shared", "lanes"), [(0.0, 16), (0.0, 2), (np.inf, 16)], ids=["all", "pairs", "one by one"])
def test_a_sweep_has_the_iterates_of_its_members(monkeypatch, members, shared, lanes):
    monkeypatch.setattr(sweeps, "SHARED", shared)
    monkeypatch.setattr(sweeps, "LANES", lanes)  # with two, the last group is not full
    states, infos = sweep(PROBLEM, settings(5, S=4), steps=7, seeds=[3, 8])
    assert infos.norm_v.shape == (5, 2, 7)
    for i, of_seeds in enumerate(members):
        for j, member in enumerate(of_seeds):
            for mine, theirs in zip(jax.tree.leaves((states, infos)), jax.tree.leaves(member), strict=True):
                np.testing.assert_allclose(mine[i, j], theirs, rtol=1e-10)


def test_a_sweep_compiles_once():
    before = sweeps._program._cache_size()
    for seeds in ([0], [1, 2, 3]):
        sweep(PROBLEM, settings(16, S=6), steps=5, seeds=seeds)
        sweep(PROBLEM, settings(16, S=6)[::-1], steps=5, seeds=seeds)
    assert sweeps._program._cache_size() == before + 1


def test_settings_share_lanes_where_batches_outweigh_states():
    def lanes(S, n):
        problem = Problem(
            outer_loss=lambda x, y, batch: (y - batch).mean(),
            inner_loss=lambda x, y, batch: (y - batch).mean() + x.mean(),
            outer_data=np.zeros((100, 10), np.float32),
            inner_data=np.zeros((100, 10), np.float32),
        )
        x0, y0 = np.zeros(n, np.float32), np.zeros(10, np.float32)
        return sweeps._lanes(problem, MRBO(S=S), sweeps.resolve("iid"), x0, y0, 20)

    assert lanes(S=64, n=10) == 10  # two groups of ten, not one of sixteen and one of four
    assert lanes(S=1, n=10_000) == 1


@pytest.mark.parametrize(
    ("algorithms", "seeds", "message"),
    [
        ([], [0], "no settings to run"),
        ([MRBO(), VRBO()], [0], "may differ in real numbers only"),
        ([MRBO(S=1), MRBO(S=2)], [0], "may differ in real numbers only"),
        (MRBO(gamma=np.ones(3)), [0], r"gamma has the shape \(3,\).*list of settings"),
        ([MRBO()], [], "seeds is empty"),
        ([MRBO()], [-1], "seed must be an integer from 0"),
    ],
)
def test_what_cannot_be_swept_is_refused(algorithms, seeds, message):
    with pytest.raises(ValueError, match=message):
        sweep(PROBLEM, algorithms, steps=5, seeds=seeds)


def test_arguments_in_the_wrong_place_are_named():
    with pytest.raises(TypeError, match=r"must be a bilax\.Problem; got MRBO"):
        sweep(MRBO(), [MRBO()], steps=5)
    with pytest.raises(TypeError, match=r"write MRBO\(\)"):
        sweep(PROBLEM, [MRBO], steps=5)
    with pytest.raises(TypeError, match="algorithm must have init, step and cost"):
        sweep(PROBLEM, ["mrbo"], steps=5)
