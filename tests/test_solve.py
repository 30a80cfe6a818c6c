"""The runner: when it stops, what it measures, what it keeps apart."""

import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bilax import MRBO, Counts, Doubtful, Info, Problem, solve
from bilax.problems import quadratic

QUADRATIC = quadratic()
ALG = MRBO(gamma=0.1, lam=0.3, Q=3, eta=0.5, S=16)


def test_history_has_the_start_and_every_measurement():
    result = solve(QUADRATIC.problem, ALG, steps=25, every=10)
    assert result.history.column("k").tolist() == [0, 10, 20, 25]
    first, last = result.history[0], result.history[-1]
    assert first["seconds"] == 0
    assert first["F"] == 0
    assert first["Phi"] == QUADRATIC.Phi(np.ones(3))
    assert last["grad_norm2"] < first["grad_norm2"]
    assert last["norm_v"] > 0
    assert last["diverging"] is False
    assert last["eta"] == 0.5
    assert (np.diff(result.history.column("seconds")) > 0).all()
    frame = result.history.to_pandas()
    assert list(frame["k"]) == [0, 10, 20, 25]
    assert result.history[1:3].column("k").tolist() == [10, 20]
    with pytest.raises(KeyError, match=r"no quantity 'loss' was measured; there are k, seconds"):
        result.history.column("loss")


def test_result_holds_the_last_state():
    result = solve(QUADRATIC.problem, ALG, steps=12)
    assert result.status == "done"
    assert result.message == "12 steps taken."
    assert int(result.state.k) == 12
    assert result.state.x is result.x
    assert result.state.v.shape == result.x.shape
    assert "done: 12 steps taken." in repr(result)


def test_the_seed_alone_decides_the_iterates():
    a, b, c = (solve(QUADRATIC.problem, ALG, steps=10, seed=s, every=e) for s, e in ((1, 3), (1, 7), (2, 3)))
    np.testing.assert_array_equal(a.x, b.x)
    assert np.abs(a.x - c.x).max() > 0


def test_metrics_given_to_solve_replace_the_problems():
    calls = []

    def metrics(x, y):
        calls.append(1)
        time.sleep(0.05)
        return {"size": jnp.linalg.norm(x)}

    result = solve(QUADRATIC.problem, ALG, steps=4, every=2, metrics=metrics)
    assert len(calls) == 3
    assert "Phi" not in result.history[0]
    assert isinstance(result.history[-1]["size"], float)
    assert result.eval_seconds >= 0.15
    assert result.seconds < 0.15


def test_compilation_is_kept_apart():
    x = jnp.ones(3)
    first = Problem(lambda x, y, b: jnp.mean((y - b) ** 2), lambda x, y, b: jnp.mean((y - x - b) ** 2), x, x)
    result = solve(first, ALG, jnp.zeros(()), jnp.zeros(()), steps=3)
    again = solve(first, ALG, jnp.zeros(()), jnp.zeros(()), steps=3)
    assert result.compile_seconds > 0.1
    assert result.seconds < result.compile_seconds
    assert again.compile_seconds < result.compile_seconds / 5


def test_time_limit():
    calm = replace(ALG, gamma=1e-6)  # however many steps there is time for
    result = solve(_slow_problem(), calm, steps=10_000, time_limit=0.5, sampler="full")
    assert result.status == "timeout"
    assert 0.5 <= result.seconds < 3
    assert 1 <= int(result.state.k) < 10_000
    assert result.history[-1]["k"] == int(result.state.k)
    assert "the budget of 0.5 s was used up after" in result.message


def _slow_problem():
    """A step takes some 20 ms: least squares on 4 million numbers."""
    data = np.random.default_rng(0).normal(size=(4000, 1000)) / 100
    loss = lambda x, y, b: jnp.mean((b @ y - 1) ** 2) + 0.5 * jnp.sum((y - x) ** 2)
    return Problem(loss, loss, data, data, jnp.zeros(()), jnp.zeros(1000))


def test_tol_stops_at_the_step_that_reaches_it_whatever_the_chunk():
    alg = replace(ALG, Q=20)
    runs = [solve(QUADRATIC.problem, alg, steps=3000, tol=0.05, every=e, sampler="full") for e in (1, 7, 500)]
    steps = {int(run.state.k) for run in runs}
    assert len(steps) == 1
    assert steps.pop() < 3000
    assert all(run.status == "converged" for run in runs)
    assert runs[0].history[-1]["norm_v"] <= 0.05
    assert "tol = 0.05" in runs[0].message
    assert all(abs(leaf) < 0.05 for leaf in QUADRATIC.gradient(np.asarray(runs[0].x)))


def test_an_estimate_below_tol_is_not_convergence():
    """A short series is biased: v vanishes where the gradient of Phi does not."""
    result = solve(QUADRATIC.problem, ALG, steps=3000, tol=0.05, sampler="full")
    assert result.status == "done"
    assert result.history[-1]["norm_v"] < 1e-5
    assert np.linalg.norm(QUADRATIC.gradient(np.asarray(result.x))) > 0.05
    assert "3000 steps taken; not converged to tol = 0.05: the last look at all data had |grad Phi| =" in result.message


@pytest.mark.parametrize("every", [1, 1000])
def test_a_run_that_turns_non_finite_keeps_the_last_finite_state(every):
    wild = MRBO(gamma=1e3, lam=30.0, Q=2, eta=0.5, S=8)
    result = solve(QUADRATIC.problem, wild, steps=1000, every=every)
    assert result.status == "diverged"
    k = int(result.state.k)
    assert 0 < k < 1000
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))
    assert f"step {k} gave numbers that are not finite" in result.message
    with pytest.warns(Doubtful, match="the outer loss grew from .* this is no solution"):
        same = solve(QUADRATIC.problem, wild, steps=k)
    assert same.status == "done"
    np.testing.assert_array_equal(same.x, result.x)
    assert result.counts == same.counts


class QuietState(NamedTuple):
    k: jax.Array
    x: jax.Array
    y: jax.Array


@jax.tree_util.register_static
@dataclass(frozen=True)
class Quiet:
    """Its y is lost in the step from k = 5 on, and its norms do not tell."""

    def init(self, oracle, x0, y0):
        return QuietState(jnp.zeros((), jnp.int32), x0, y0)

    def step(self, oracle, key, s):
        return QuietState(s.k + 1, s.x, jnp.where(s.k >= 5, jnp.nan, s.y + 1)), Info(1.0, 1.0)

    def cost(self, k):
        return Counts(G=1)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_state_that_turns_non_finite_behind_finite_norms_is_noticed(every):
    result = solve(QUADRATIC.problem, Quiet(), steps=100, every=every, metrics=lambda x, y: {"y": jnp.max(y)})
    assert result.status == "diverged"
    assert int(result.state.k) == 5
    assert np.isfinite(result.y).all()
    assert result.counts == Counts(G=5)
    assert [row["k"] for row in result.history][-1] == 5
    assert all(np.isfinite(row["y"]) for row in result.history)


def test_ctrl_c_keeps_what_was_done():
    timer = threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT))
    slow = _slow_problem()
    solve(slow, replace(ALG, gamma=1e-6), steps=1, sampler="full")  # compiled before the clock starts
    before = signal.getsignal(signal.SIGINT)
    timer.start()
    result = solve(slow, replace(ALG, gamma=1e-6), steps=100_000, sampler="full")
    timer.join()
    assert result.status == "interrupted"
    assert 0 < int(result.state.k) < 100_000
    assert result.history[-1]["k"] == int(result.state.k)
    assert signal.getsignal(signal.SIGINT) is before


def test_no_bar_when_standard_error_is_not_a_terminal(capfd):
    solve(QUADRATIC.problem, ALG, steps=3)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_a_bar_when_asked_for(capfd):
    solve(QUADRATIC.problem, ALG, steps=3, progress=True)
    assert "MRBO" in capfd.readouterr().err


def test_solve_works_in_a_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(solve(QUADRATIC.problem, ALG, steps=3)))
    thread.start()
    thread.join()
    assert results[0].status == "done"


def test_start_given_to_solve_is_left_alone():
    x0 = jnp.ones(3)
    solve(QUADRATIC.problem, ALG, x0, jnp.zeros(4), steps=3)
    np.testing.assert_array_equal(x0, jnp.ones(3))


def test_x0_may_be_python_numbers_and_numpy_arrays():
    problem = Problem(
        lambda x, y, b: jnp.mean((y - b) ** 2) + x["c"] ** 2,
        lambda x, y, b: jnp.mean((y - x["a"].sum() - x["c"] - b) ** 2),
        np.ones(8),
        np.ones(8),
    )
    result = solve(problem, ALG, {"a": np.zeros(2), "c": 1.0}, 0.0, steps=4)
    assert result.x["a"].shape == (2,)
    assert result.y.shape == ()


def test_works_under_debug_nans():
    """The switch that people turn on when a run diverges."""
    with jax.debug_nans(True):
        result = solve(QUADRATIC.problem, ALG, steps=3)
    assert result.status == "done"
