"""eta="auto", and the warning that a series grows."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from real_data import needs_data

import bilax
from bilax import MRBO, SEMA, VRBO, Problem, StocBiO, UnsafeEta, iterate, solve
from bilax.datasets import digits
from bilax.hypergrad import auto_eta, neumann
from bilax.oracle import make_oracle
from bilax.problems import hyper_cleaning, quadratic
from bilax.sampling import keys

Q = quadratic(q=6, seed=4)


def test_power_iteration_finds_the_largest_eigenvalue():
    oracle = make_oracle(Q.problem, "full")
    L, samples = auto_eta.largest_eigenvalue(oracle, keys.root(0), Q.problem.x0, Q.problem.y0, 1, iterations=500)
    assert samples == 2 * 512
    np.testing.assert_allclose(L, np.linalg.eigvalsh(Q._mean["A"])[-1], rtol=1e-6)
    rough, _ = auto_eta.largest_eigenvalue(oracle, keys.root(0), Q.problem.x0, Q.problem.y0, 1)
    assert 0.9 * L < rough <= L * (1 + 1e-9)


def test_power_iteration_sample_by_sample_finds_the_worst_one():
    oracle = make_oracle(Q.problem, "full")
    oracle = make_oracle(Q.problem, "epoch")
    worst, samples = auto_eta.largest_eigenvalue(oracle, keys.root(0), Q.problem.x0, Q.problem.y0, 1, iterations=500)
    assert samples == 256
    each = np.linalg.eigvalsh(Q.A + Q.inner["s"][:, None, None] * Q.B)[:, -1]
    assert np.quantile(each, 0.97) < worst <= each.max() * (1 + 1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_power_iteration_is_not_misled_by_equal_halves(sign):
    """Two equal halves whose sum, or difference, is the most curved direction: a start with equal halves would miss
    the one, a start with opposite halves the other."""

    def loss(x, y, batch):
        curved = y["a"] + sign * y["b"]
        return 0.5 * (jnp.sum(curved) ** 2 / 200 + 0.1 * jnp.sum(y["a"] ** 2 + y["b"] ** 2)) + x * jnp.mean(batch)

    y = {"a": jnp.zeros(100), "b": jnp.zeros(100)}
    oracle = make_oracle(Problem(loss, loss, np.ones(3), np.ones(3), jnp.zeros(()), y))
    L, _ = auto_eta.largest_eigenvalue(oracle, keys.root(0), jnp.zeros(()), y, 256)
    np.testing.assert_allclose(L, 1.1, rtol=0.01)


def test_single_samples_far_more_curved_than_most():
    """Rows of very different lengths: the eta of a single-sample method must suit the longest ones."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) * np.exp(rng.normal(size=(500, 1)))
    loss = lambda x, y, b: jnp.mean((b @ y - 1) ** 2) + 0.1 * jnp.sum((y - x) ** 2)
    problem = Problem(loss, loss, rows, rows, jnp.zeros(()), jnp.zeros(4))
    _, info, _ = jax.jit(lambda: iterate(problem, SEMA(gamma=1e-4, tau=1e-4), steps=1000))()
    assert np.asarray(info.diverging).sum() <= 5
    assert info.growth.max() < 10
    assert (np.asarray(info.calls.HV) > 0).sum() < 90


@pytest.mark.parametrize("algorithm", [MRBO(S=64), VRBO(S1=100, S2=64), VRBO(S1=100, S2=64, per_sample=True)])
def test_auto_is_below_1_over_L(algorithm):
    _, info, _ = jax.jit(lambda: iterate(Q.problem, algorithm, Q.problem.x0, Q.problem.y0, steps=30))()
    L = np.linalg.eigvalsh(Q._mean["A"])[-1]
    assert (info.eta > 0.3 / L).all()
    assert (info.eta < 1.1 / L).all()  # 0.9 / (an estimate at most 10 % low)
    assert not info.diverging.any()


def sharpening():
    """An inner loss that gets sharper as x moves: L = exp(x)."""
    return Problem(
        lambda x, y, b: -0.1 * x + jnp.mean((y.sum() + b) ** 2) / 100,
        lambda x, y, b: 0.5 * jnp.exp(x) * jnp.sum(y**2) + jnp.mean(b) * jnp.sum(y),
        np.ones(8),
        np.ones(8),
    )


def test_auto_measures_again_when_the_variables_have_moved_and_not_otherwise():
    alg = MRBO(gamma=1.0, lam=0.1, S=4)
    _, info, _ = jax.jit(lambda: iterate(sharpening(), alg, 1.0 + jnp.zeros(()), -jnp.ones(2) / jnp.e, steps=100))()
    measured = np.asarray(info.calls.HV) > 0
    assert measured[0]
    assert 1 < measured.sum() < 50
    assert info.eta[-1] < info.eta[0] / 1.5  # it followed the sharpening
    still = MRBO(gamma=0.0, lam=0.0, S=4)
    _, info, _ = jax.jit(lambda: iterate(sharpening(), still, 1.0 + jnp.zeros(()), jnp.ones(2), steps=10))()
    assert (np.asarray(info.calls.HV) > 0).tolist() == [True] + [False] * 9


@pytest.mark.slow
def test_auto_side_by_side():
    """Under vmap measuring stays a branch, each run keeps its own L, and what it spends is counted for it alone."""

    def run(step):
        return iterate(Q.problem, MRBO(gamma=step, lam=step, eta="auto", S=8), y0=jnp.ones(6), steps=40)

    sizes = jnp.array([1e-6, 0.3])
    together = jax.jit(jax.vmap(run))
    assert "cond[" in str(jax.make_jaxpr(jax.vmap(run))(sizes))
    found = together(sizes)
    measured = np.asarray(found.info.calls.HV) > 0
    assert (measured[0] != measured[1]).any()
    for i, step in enumerate(sizes):
        alone = jax.jit(run)(step)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-7), found, alone)
    nested = jax.jit(jax.vmap(jax.vmap(run)))(sizes[None]).state
    np.testing.assert_allclose(nested.x[0], found.state.x, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.05, "auto"])
def test_runs_can_be_differentiated(eta):
    def final(gamma):
        return jnp.sum(iterate(Q.problem, MRBO(gamma=gamma, lam=0.1, eta=eta, S=8), steps=5)[0].x)

    slope, step = jax.grad(final)(0.5), 1e-6
    np.testing.assert_allclose(slope, (final(0.5 + step) - final(0.5 - step)) / (2 * step), rtol=1e-6)


def test_auto_follows_a_series_that_grew():
    """Even if nothing moved: (1 + growth) / eta is a lower bound of L."""
    oracle = make_oracle(Q.problem)
    fraction, x, y = 0.9, Q.problem.x0, Q.problem.y0
    here, _ = auto_eta.update(auto_eta.unmeasured(x, y), fraction, oracle, keys.root(0), 0, x, y, 64)
    low = here._replace(L=here.L / 10)  # pretend that it was measured ten times too small
    eta_low = auto_eta.safe_eta(low, fraction)
    B = neumann.draw(oracle, keys.root(1), 64, 3)
    growth = neumann.hypergrad(oracle, x, y, B, eta_low).growth
    assert neumann.grew(growth)
    after, probes = auto_eta.update(auto_eta.after_series(low, growth), fraction, oracle, keys.root(2), 1, x, y, 64)
    assert auto_eta.safe_eta(after, fraction) < eta_low / 5
    assert probes > 0


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.9])
def test_growth_is_at_most_1_below_2_over_L(ratio):
    oracle = make_oracle(Q.problem, "full")
    L = np.linalg.eigvalsh(Q._mean["A"])[-1]
    B = neumann.draw(oracle, keys.root(0), 1, 50)
    estimate = neumann.hypergrad(oracle, Q.problem.x0, Q.problem.y0, B, ratio / L)
    assert 0 < estimate.growth <= 1
    assert not neumann.grew(estimate.growth)


def test_growth_above_2_over_L():
    oracle = make_oracle(Q.problem, "full")
    L = np.linalg.eigvalsh(Q._mean["A"])[-1]
    B = neumann.draw(oracle, keys.root(0), 1, 50)
    estimate = neumann.hypergrad(oracle, Q.problem.x0, Q.problem.y0, B, 2.5 / L)
    assert neumann.grew(estimate.growth)
    np.testing.assert_allclose(estimate.growth, 1.5, rtol=0.01)  # |1 - eta L|


@pytest.mark.parametrize("algorithm", [MRBO, VRBO])
def test_an_unsafe_eta_warns_once_and_names_what_is_safe(algorithm):
    with pytest.warns(UnsafeEta) as caught:
        result = solve(Q.problem, algorithm(eta=4.0), steps=9, every=5)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"{algorithm.__name__}: eta = 4 is too large for the Neumann series" in text
    assert "the largest safe eta is 1/L" in text
    assert 'or eta="auto"' in text
    np.testing.assert_allclose(float(text.split("L = ")[1].split(" ")[0]), 1.0, rtol=0.3)
    assert caught[0].filename == __file__
    assert result.history[-1]["diverging"] is True
    assert result.history[-1]["growth"] > 2


def test_a_series_that_grows_later_warns_then():
    """Safe at the start, where L = e; not after x has grown."""
    with pytest.warns(UnsafeEta) as caught:
        solve(sharpening(), MRBO(gamma=1.0, lam=0.05, S=4, eta=0.3), 1.0, jnp.zeros(2), steps=200)
    assert len(caught) == 1
    text = str(caught[0].message)
    step = int(text.split("the Neumann series grows at step ")[1].split(":")[0])
    assert 0 < step < 200
    L, safe = (float(text.split(f"{name} = ")[1].split(" ")[0].rstrip(".")) for name in ("L", "1/L"))
    assert L > 2 / 0.3
    np.testing.assert_allclose(safe, 1 / L, rtol=0.01)
    assert caught[0].filename == __file__


def test_the_warning_changes_no_iterate():
    with pytest.warns(UnsafeEta):
        result = solve(Q.problem, MRBO(eta=3.0, gamma=0.01), steps=12)
    state, *_ = jax.jit(lambda: iterate(Q.problem, MRBO(eta=3.0, gamma=0.01), Q.problem.x0, Q.problem.y0, steps=12))()
    np.testing.assert_allclose(result.x, state.x, rtol=1e-10)
    assert result.counts.HV == sum(MRBO(eta=3.0).cost(k).HV for k in range(12))


def test_a_safe_eta_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(Q.problem, MRBO(eta=0.85), steps=20)
        solve(hyper_cleaning(digits()), MRBO(gamma=100), steps=100)


def test_auto_warns_if_it_cannot_help():
    """A concave direction: (1 + eta |h|) > 1 for every eta."""
    saddle = Problem(
        lambda x, y, b: jnp.mean((y[0] + y[1] - b) ** 2) + x**2,
        lambda x, y, b: jnp.mean(b) * (y[0] ** 2 - y[1] ** 2) + x * y[0],
        np.ones(8),
        np.ones(8),
    )
    with pytest.warns(UnsafeEta, match="not convex in y"):
        solve(saddle, MRBO(gamma=0.01, lam=0.01, S=4), 1.0, jnp.ones(2), steps=20)


@pytest.mark.slow
@needs_data
def test_the_papers_eta_on_mnist_warns():
    """Q = 3, eta = 0.5, batches of 1000, steps 0.1: the paper's setting breaks its own condition eta < 1/L."""
    from bilax.datasets import mnist

    problem = hyper_cleaning(mnist(0.1))
    paper = MRBO(gamma=0.1, lam=0.1, Q=3, eta=0.5, S=1000)
    w0 = np.sqrt(2 / 10) * np.random.default_rng(0).normal(size=problem.y0.shape)
    for y0, low, high in ((problem.y0, 0.07, 0.09), (jnp.asarray(w0, jnp.float32), 0.15, 0.3)):
        with pytest.warns(UnsafeEta, match=r"eta = 0\.5 is too large for the Neumann series") as caught:
            result = solve(problem, paper, problem.x0, y0, steps=3)
        assert len(caught) == 1
        assert low < float(str(caught[0].message).split("1/L = ")[1].split(". ")[0]) < high
        if y0 is problem.y0:
            assert result.history[-1]["diverging"] is True


def test_the_papers_eta_on_unscaled_digits_warns():
    """The same, offline: digits with pixels as bright as MNIST's after its normalisation."""
    task = digits(0.1)
    bright = task._replace(features=3 * task.features, trusted_features=3 * task.trusted_features)
    with pytest.warns(UnsafeEta, match=r"eta = 0\.5 is too large"):
        solve(hyper_cleaning(bright), MRBO(gamma=0.1, lam=0.1, Q=3, eta=0.5, S=500), steps=5)


@pytest.mark.parametrize(
    ("curved", "L"),
    [
        (lambda y: (y[0] + y[1]) ** 2 + 0.01 * jnp.sum(y**2), 4.02),
        (lambda y: jnp.sum(y) ** 2, 2.0 * 6),  # equal columns
        (lambda y: (y[0] - y[1]) ** 2 + (y[2] - y[3]) ** 2, 4.0),
        (lambda y: jnp.sum(y * jnp.array([1.0, -1, 1, -1, 1, -1])) ** 2, 2.0 * 6),
        (lambda y: 0.5 * y[5] ** 2, 1.0),
    ],
)
def test_no_structure_hides_the_curvature(curved, L):
    problem = Problem(
        lambda x, y, batch: jnp.sum((y - 1) ** 2) + x + 0 * batch.mean(),
        lambda x, y, batch: curved(y) + 0 * (x + batch.mean()),
        jnp.zeros(4),
        jnp.zeros(4),
    )
    oracle, y = make_oracle(problem), jnp.zeros(6)
    found, _ = auto_eta.largest_eigenvalue(oracle, keys.root(0), jnp.zeros(()), y, 4)
    np.testing.assert_allclose(found, L, rtol=1e-3)
    np.testing.assert_allclose(bilax.theory.estimate(problem, jnp.zeros(()), y).L, L, rtol=1e-6)


def test_where_nothing_is_curved_eta_stays_small_and_finite():
    flat = Problem(
        lambda x, y, batch: jnp.sum((y - 1) ** 2) + x**2 + 0 * batch.mean(),
        lambda x, y, batch: 0 * (jnp.sum(y) + x + batch.mean()),
        jnp.zeros(4),
        jnp.zeros(4),
    )
    info = iterate(flat, MRBO(S=2), jnp.ones(()), jnp.zeros(3), steps=3).info
    np.testing.assert_allclose(info.eta, 0.9)


def test_nan_counts_as_growth():
    assert bool(neumann.grew(jnp.nan))
    assert np.isnan(neumann.ratio(jnp.nan, jnp.array(1.0)))
    assert np.isnan(neumann.ratio(jnp.array(1.0), jnp.array(jnp.nan)))
    assert neumann.ratio(jnp.array(0.0), jnp.array(0.0)) == 0


@pytest.mark.parametrize(
    "algorithm", [MRBO(gamma=0.01, lam=0.05, S=32, Q=5), StocBiO(alpha=0.02, beta=0.01, S=32, Q=5)]
)
def test_a_saddle_does_not_make_eta_collapse(algorithm):
    """A network of two linear layers, from near 0: residuals grow along negative curvature, whatever eta is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    data = {"X": X, "t": X @ rng.normal(size=5)}
    error = lambda y, b: jnp.mean((b["X"] @ y["A"] @ y["B"] - b["t"]) ** 2)
    inner = lambda x, y, b: error(y, b) + 1e-3 * jnp.exp(x) * (jnp.sum(y["A"] ** 2) + jnp.sum(y["B"] ** 2))
    y0 = {"A": 0.01 * rng.normal(size=(5, 8)), "B": 0.01 * rng.normal(size=8)}
    problem = Problem(lambda x, y, b: error(y, b), inner, data, data, x0=jnp.zeros(()), y0=y0)
    with pytest.warns(UnsafeEta, match="the Neumann series grows"):
        result = solve(problem, algorithm, steps=400, every=40)
    flat, unravel = ravel_pytree(result.y)
    H = jax.jit(jax.hessian(lambda y: inner(result.x, unravel(y), data)))(flat)
    L = np.linalg.eigvalsh(H).max()
    assert 0.2 / L < result.history[-1]["eta"] < 1 / L
