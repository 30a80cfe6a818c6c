"""Honest outcomes: what has not converged does not say so, and what is no solution comes with a warning."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bilax
from bilax import AIDCG, MRBO, RSVRB, SOBA, Doubtful, Problem, StocBiO, UnsafeEta, hypergradient, iterate, solve, sweep
from bilax.hypergrad import ConjugateGradient, Exact, Neumann
from bilax.problems import quadratic

NOTHING = jnp.zeros(4)
LONG = ("mrbo", "vrbo", "mstsa", "ttsa", "bsa", "stable", "rsvrb", "sema")  # those after VRBO need more steps than 400


def problem(eigenvalues, coupled=False):
    """Phi(x) = |y*(x) - 1|^2 / 2 with inner eigenvalues; ``coupled``: the linear term does not shrink with them."""
    H = jnp.asarray(eigenvalues)

    def inner(x, y, batch):
        linear = x if coupled else H * x
        return 0.5 * jnp.sum(H * y**2) - jnp.sum(linear * y) + 0 * batch.mean()

    return Problem(
        lambda x, y, batch: 0.5 * jnp.sum((y - 1) ** 2) + 0 * batch.mean(),
        inner,
        NOTHING,
        NOTHING,
        x0=jnp.zeros(len(H)),
        y0=jnp.zeros(len(H)),
    )


# Converged, or not


def test_a_small_estimate_on_a_badly_conditioned_problem_is_not_convergence():
    result = solve(problem(np.logspace(-4, 0, 5)), MRBO(gamma=1.0, lam=0.5), steps=500, tol=0.5)
    assert result.status == "done"
    assert result.history[1]["norm_v"] <= 0.5 or result.history[-1]["norm_v"] <= 0.5
    assert "not converged to tol = 0.5" in result.message


def test_a_start_where_the_outer_gradient_is_zero_is_not_convergence():
    tilted = Problem(
        lambda x, y, batch: (y - 5.0) ** 2 + 0 * batch.mean(),
        lambda x, y, batch: (y - x) ** 2 + 0 * batch.mean(),
        NOTHING,
        NOTHING,
        x0=jnp.zeros(()),
        y0=jnp.array(5.0),
    )
    result = solve(tilted, MRBO(), steps=3000, tol=1e-3)
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, 5, atol=1e-2)


def test_one_lucky_batch_is_not_convergence():
    rng = np.random.default_rng(0)
    noisy = Problem(
        lambda x, y, batch: jnp.mean((y - batch) ** 2),
        lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
        rng.normal(size=50),
        rng.normal(size=50),
        x0=jnp.array(3.0),
        y0=jnp.zeros(()),
    )
    result = solve(noisy, StocBiO(S=1), steps=2000, tol=1e-2)
    assert result.status == "done"
    assert "the last look at all data had" in result.message  # a batch was lucky, and was looked at
    assert solve(noisy, StocBiO(), steps=2000, tol=1e-2, sampler="full").status == "converged"


def test_a_constraint_that_is_active_counts_as_converged():
    """The gradient does not vanish at the bound of x, only the move that a projected step makes."""
    q = replace(problem([1.0, 2.0]), project_x=lambda x: jnp.clip(x, -1, 0.5))
    result = solve(q, StocBiO(alpha=0.3, beta=0.3, Q=30), steps=500, tol=1e-3)
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, 0.5)
    assert result.history[-1]["norm_v"] > 0.1


def test_an_oracle_of_ones_own_is_looked_at_over_many_draws():
    oracle = bilax.make_oracle(problem([1.0, 2.0]))
    result = solve(oracle, StocBiO(alpha=0.3, beta=0.3, Q=30), jnp.zeros(2), jnp.zeros(2), steps=500, tol=1e-3)
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, 1, atol=1e-2)
    assert "outer_loss" not in result.history[-1]


def test_looking_changes_no_iterate_and_no_count():
    alg = MRBO(gamma=0.5, lam=0.5)
    looked, free = (solve(problem([1.0, 2.0]), alg, steps=200, tol=tol) for tol in (1e-9, None))
    np.testing.assert_array_equal(looked.x, free.x)
    assert looked.counts == free.counts
    assert looked.status == free.status == "done"


# Garbage


@pytest.mark.parametrize(
    ("garbage", "algorithm", "steps"),
    [
        (problem([1e-8] * 4, coupled=True), MRBO(), 12),
        (problem(np.logspace(-8, 0, 5), coupled=True), AIDCG(), 10),
        (problem(np.logspace(-2, 0, 5), coupled=True), RSVRB(), 400),
        (problem([1.0, -1.0]), MRBO(), 100),
        (problem([1.0, -1.0]), AIDCG(), 100),
        (problem([1.0, -1.0]), StocBiO(), 100),
        (problem([1.0, -1.0]), SOBA(), 100),
        (problem([0.0, 0.0]), MRBO(), 200),
    ],
    ids=["tiny", "badly", "rsvrb", "saddle-mrbo", "saddle-cg", "saddle-stocbio", "saddle-soba", "flat"],
)
def test_garbage_is_not_silent(garbage, algorithm, steps):
    with pytest.warns(Doubtful):
        result = solve(garbage, algorithm, steps=steps)
    assert result.status == "done"
    assert result.warnings
    assert all(isinstance(text, str) for text in result.warnings)


@pytest.mark.parametrize(
    "name",
    ["mrbo", "vrbo", *(pytest.param(name, marks=pytest.mark.slow) for name in bilax.ALGORITHMS if name not in LONG)],
)
def test_a_sound_run_has_no_warning(name):
    result = solve(quadratic().problem, bilax.ALGORITHMS[name](), steps=400)
    assert result.warnings == ()


def test_a_loss_that_is_nan_with_finite_gradients():
    def outer(x, y, batch):
        return jnp.sum((y - 1) ** 2) + jax.lax.stop_gradient(jnp.log(-1.0 - 0 * batch.mean()))

    nan = replace(problem([1.0, 2.0]), outer_loss=outer)
    with pytest.warns(Doubtful, match="outer_loss is NaN at step 0, although x and y are finite"):
        result = solve(nan, MRBO(), steps=20)
    assert np.isnan(result.history[-1]["outer_loss"])


def test_the_history_has_both_losses_outside_of_the_clock():
    q = quadratic()
    result = solve(q.problem, MRBO(S=4), steps=10, every=5, metrics=lambda x, y: {"outer_loss": 7.0})
    assert {"outer_loss", "inner_loss", "inner_gradient"} <= set(result.history.names)
    assert result.history[-1]["outer_loss"] == 7.0  # the user's own wins
    plain = solve(q.problem, MRBO(S=4), steps=10, every=5, metrics=None)
    oracle = bilax.make_oracle(q.problem, "full")
    data = oracle.draw_F(None, 1), oracle.draw_G(None, 1)
    np.testing.assert_allclose(plain.history[-1]["outer_loss"], oracle.value_F(plain.x, plain.y, data[0]))
    np.testing.assert_allclose(plain.history[-1]["inner_loss"], oracle.value_G(plain.x, plain.y, data[1]))
    gradient = oracle.grad_G(plain.x, plain.y, data[1])
    np.testing.assert_allclose(plain.history[-1]["inner_gradient"], np.linalg.norm(gradient))


def test_large_data_are_looked_at_in_part():
    data = np.arange(25_000.0)
    large = Problem(
        lambda x, y, batch: jnp.mean(batch) + 0 * x * y,
        lambda x, y, batch: jnp.mean((y - x) ** 2 + 0 * batch),
        data,
        data,
        x0=jnp.zeros(()),
        y0=jnp.zeros(()),
    )
    result = solve(large, MRBO(S=2, eta=0.3), steps=1)
    np.testing.assert_allclose(result.history[0]["outer_loss"], data.mean(), rtol=1e-4)


# Estimators


def test_an_indefinite_hessian_gives_a_warning_whatever_the_estimator():
    saddle = problem([1.0, -1.0])
    for method in (Exact(), ConjugateGradient()):
        with pytest.warns(Doubtful, match="of the right-hand side of the linear system is left"):
            assert not hypergradient(saddle, saddle.x0, saddle.y0, method).residual < 0.99
    with pytest.warns(UnsafeEta, match="the series grew, by a factor of"):
        hypergradient(saddle, saddle.x0, saddle.y0, Neumann())
    with pytest.warns(UnsafeEta, match="the series grew, by a factor of 19"):
        hypergradient(problem([1.0, 2.0]), saddle.x0, saddle.y0, Neumann(eta=10.0))


def test_the_residual_of_the_exact_estimator_is_measured():
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    A = jnp.asarray((rotation * np.logspace(-8, 0, 20)) @ rotation.T, jnp.float32)
    stiff = Problem(
        lambda x, y, batch: 0.5 * jnp.sum((y - 1) ** 2) + 0 * batch.mean(),
        lambda x, y, batch: 0.5 * (y - x) @ A @ (y - x) + 0 * batch.mean(),
        np.zeros(4, np.float32),
        np.zeros(4, np.float32),
    )
    start = np.zeros(20, np.float32)
    with pytest.warns(Doubtful, match="too badly conditioned"):
        assert hypergradient(stiff, start, start).residual > 0.01
    assert hypergradient(problem([1.0, 2.0]), np.zeros(2), np.zeros(2)).residual < 1e-12


# Runs without a clock


def test_sweep_and_iterate_warn():
    q = problem([1.0, 2.0])
    with pytest.warns(Doubtful, match=r"1 of 2 runs met numbers that are not finite \(the first: 1, 0\)"):
        sweep(q, [MRBO(gamma=gamma, eta=0.3) for gamma in (0.1, 1e200)], steps=20)
    with pytest.warns(Doubtful, match="the series of 1 of 1 runs still grew in the last step"):
        iterate(q, MRBO(eta=1.8, gamma=0.0), steps=20)
    with pytest.warns(Doubtful, match="in 1 of 1 runs the linear system stayed unsolved"):
        iterate(q, MRBO(eta=1e-4), steps=200)


# Why a run diverged


def test_an_overflow_is_called_one():
    result = solve(problem([1.0, 2.0]), MRBO(gamma=1e10, lam=1e10), steps=200)
    assert result.status == "diverged"
    assert "The cause: an overflow: " in result.message
    assert "float64 ends at 1.8e+308" in result.message


def test_a_nan_out_of_moderate_numbers_is_not_called_an_overflow():
    def inner(x, y, batch):
        return jnp.sum(jnp.sqrt(0.5 - jnp.sum((x - y) ** 2)) * -1.0) + 0 * batch.mean()

    root = replace(problem([1.0, 2.0]), inner_loss=inner, x0=jnp.zeros(2), y0=jnp.full(2, 0.4))
    result = solve(root, bilax.StocBiO(alpha=30.0, eta=0.1), steps=200)
    assert result.status == "diverged"
    assert "look for a division by 0, or a logarithm or a root of a negative number" in result.message
