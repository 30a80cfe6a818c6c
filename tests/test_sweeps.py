"""A sweep: the same iterates as its members, one compilation, however they are run."""

import threading
import time

import jax
import numpy as np
import pytest

from bilax import MRBO, VRBO, Problem, iterate
from bilax.oracle import traced
from bilax.problems import quadratic
from bilax.running import sweep as sweeps
from bilax.running.sweep import sweep

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
    found = sweep(PROBLEM, settings(5, S=4), steps=7, seeds=[3, 8])
    assert found.info.norm_v.shape == (5, 2, 7)
    for i, of_seeds in enumerate(members):
        for j, member in enumerate(of_seeds):
            for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(member), strict=True):
                np.testing.assert_allclose(mine[i, j], theirs, rtol=1e-10)


def test_a_sweep_compiles_once(compiled):
    for seeds in ([0], [2, 1, 0]):
        sweep(PROBLEM, settings(16, S=6), steps=5, seeds=seeds)
        sweep(PROBLEM, settings(16, S=6)[::-1], steps=5, seeds=seeds)
    assert compiled.count("jit(_program)") == 1


def test_every_core_has_a_member_of_its_own(monkeypatch):
    """Two programs wait for each other, which they can only if they run at the same time."""
    monkeypatch.setattr(sweeps, "_cores", lambda: 2)
    meeting = threading.Barrier(2)
    program = jax.jit(lambda _, x: jax.pure_callback(lambda y: (meeting.wait(20), y)[1], x, x))
    tasks = [(np.arange(3.0),), (np.arange(3.0) + 1,)]
    got = list(sweeps.on_every_core(program, (), (np.zeros(1),), tasks))
    np.testing.assert_array_equal(got, [[0, 1, 2], [1, 2, 3]])


def test_a_sweep_has_the_precision_of_its_caller():
    with jax.enable_x64(False):  # tests have it on, and so have new threads
        states, *_ = sweep(quadratic().problem, settings(5, S=4), steps=3)
    assert states.x.dtype == states.y.dtype == np.float32


def test_a_failure_in_one_core_ends_the_sweep(monkeypatch):
    monkeypatch.setattr(sweeps, "_cores", lambda: 2)
    ran = []

    def broken(x):
        ran.append(x)
        time.sleep(0.02)  # all of them would take a second
        raise FloatingPointError("broken")

    program = jax.jit(lambda _, x: jax.pure_callback(broken, x, x))
    with pytest.raises(Exception, match="broken"):
        list(sweeps.on_every_core(program, (), (np.zeros(1),), [(np.ones(2),)] * 100))
    assert len(ran) < 100


@pytest.mark.parametrize(
    ("S", "n", "settings", "cores", "lanes"),
    [
        (64, 10, 20, 1, 7),  # three groups of about the same size
        (64, 10, 20, 2, 5),  # two groups for each core
        (64, 10, 16, 64, 4),  # fewer than four settings are not worth a core
        (64, 10, 3, 2, 3),
        (1, 10_000, 20, 2, 1),  # nothing to share
    ],
)
def test_settings_share_lanes_where_batches_outweigh_states(monkeypatch, S, n, settings, cores, lanes):
    problem = Problem(
        outer_loss=lambda x, y, batch: (y - batch).mean(),
        inner_loss=lambda x, y, batch: (y - batch).mean() + x.mean(),
        outer_data=np.zeros((100, 10), np.float32),
        inner_data=np.zeros((100, 10), np.float32),
    )
    monkeypatch.setattr(sweeps, "_cores", lambda: cores)
    x0, y0 = np.zeros(n, np.float32), np.zeros(10, np.float32)
    assert sweeps._lanes(traced(problem, "iid"), MRBO(S=S), x0, y0, settings) == lanes


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
