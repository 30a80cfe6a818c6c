"""Every estimator against the dense closed form, finite differences, and its own mean."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problem_cases import PROBLEM_CASES

from bilax import Problem, hypergradient
from bilax.datasets import digits
from bilax.hypergrad import (
    SAMA,
    ConjugateGradient,
    Differences,
    Exact,
    FixedPoint,
    Neumann,
    Nystrom,
    RandomNeumann,
    Subspace,
    Unrolled,
    neumann,
    random_neumann,
    unrolled,
)
from bilax.oracle import make_oracle
from bilax.problems import hyper_cleaning, quadratic
from bilax.sampling import keys

ALL = np.arange(24)
by_name = pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)


def exact(case):
    y = case.y0.ravel()
    H, J = case.twin.G_yy(case.x0, y, ALL), case.twin.G_xy(case.x0, y, ALL)
    return case.twin.F_x(case.x0, y, ALL) - J @ np.linalg.solve(H, case.twin.F_y(case.x0, y, ALL))


@by_name
@pytest.mark.parametrize(
    "method",
    [Exact(), ConjugateGradient(N=14), FixedPoint(N=3000), Neumann(Q=3000), Subspace(N=3000)],
    ids=lambda m: type(m).__name__,
)
def test_equals_the_dense_closed_form(case, method):
    estimate = hypergradient(case.problem, case.x0, case.y0, method)
    np.testing.assert_allclose(np.ravel(estimate.value), exact(case), rtol=1e-8, atol=1e-10)
    assert estimate.residual < 1e-8


@by_name
def test_fewer_steps_are_less_exact_and_say_so(case):
    for few, many in ((Neumann(Q=2), Neumann(Q=30)), (FixedPoint(N=2), FixedPoint(N=30)),
                      (ConjugateGradient(N=1), ConjugateGradient(N=3))):  # fmt: skip
        a, b = (hypergradient(case.problem, case.x0, case.y0, m) for m in (few, many))
        errors = [np.abs(np.ravel(e.value) - exact(case)).max() for e in (a, b)]
        assert errors[1] < errors[0]
        assert 0 < b.residual < a.residual


@pytest.mark.parametrize("method", [Exact(), ConjugateGradient(N=4), FixedPoint(N=500), Neumann(Q=500)])
def test_at_the_inner_solution_it_is_the_gradient_of_Phi(method):
    q = quadratic(seed=3)
    x = np.array([0.4, -1.0, 2.0])
    h = 1e-5
    slopes = [(q.Phi(x + h * e) - q.Phi(x - h * e)) / (2 * h) for e in np.eye(3)]
    estimate = hypergradient(q.problem, x, q.y_star(x), method)
    np.testing.assert_allclose(estimate.value, slopes, atol=1e-7)


@by_name
@pytest.mark.parametrize(("T", "last"), [(1, 1), (6, 6), (7, 7), (7, 3), (16, 16), (17, 5)])
def test_unrolled_is_the_derivative_of_the_loop(case, T, last):
    """Against JAX's own derivative of the whole loop, on random batches; all but the last steps held constant."""
    oracle = make_oracle(case.problem)
    x, y, key = jnp.asarray(case.x0), jnp.asarray(case.y0), keys.at(keys.root(1), 2)
    B_F = oracle.draw_F(keys.root(9), 5)
    passes = keys.for_loop(key, T)

    def end(x, cut):
        step = lambda z, key: (z - 0.3 * oracle.grad_G(x, z, oracle.draw_G(key, 5)), None)
        z = jax.lax.stop_gradient(jax.lax.scan(step, y, passes[:cut])[0])
        return jax.lax.scan(step, z, passes[cut:])[0]

    at_the_end = lambda x: (case.problem.outer_loss(x, end(x, T - last), B_F), end(x, 0))
    expected, y_end = jax.jit(jax.grad(at_the_end, has_aux=True))(x)
    estimate, y_T, *_ = jax.jit(lambda x: unrolled.hypergrad(oracle, key, B_F, x, y, (), 0.3, T, last, 5))(x)
    np.testing.assert_allclose(y_T, y_end, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(estimate.value, expected, rtol=1e-10, atol=1e-12)


def test_unrolled_over_many_steps_tends_to_the_exact_hypergradient():
    q = quadratic(seed=3)
    x = np.array([0.4, -1.0, 2.0])
    errors = [
        np.abs(hypergradient(q.problem, x, np.zeros(4), Unrolled(step=0.9, T=T)).value - q.gradient(x)).max()
        for T in (5, 20, 80)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-10


def test_unrolled_keeps_few_iterates():
    """400 steps: the program holds some 20 iterates at a time, not 400."""
    problem = hyper_cleaning(digits(train=60, trusted=40))
    oracle = make_oracle(problem, "full")
    program = jax.jit(
        lambda x, y: (
            unrolled.hypergrad(oracle, keys.root(0), problem.outer_data, x, y, (), 0.1, 400, 400, 1).estimate.value
        )
    )
    text = program.lower(problem.x0, problem.y0).as_text()
    assert "tensor<20x10x65x" in text
    assert "tensor<400x10x65x" not in text


@by_name
def test_the_series_of_random_length_has_the_mean_of_equation_4(case):
    """Full batches: only the length is random, so the mean over all Q + 1 lengths is the Neumann sum, exactly."""
    oracle = make_oracle(case.problem, "full")
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    B = random_neumann.draw(oracle, keys.root(0), 1, 5)
    each = [random_neumann.hypergrad(oracle, x, y, B._replace(p=jnp.int32(p)), case.eta).value for p in range(6)]
    whole = neumann.hypergrad(oracle, x, y, neumann.draw(oracle, keys.root(0), 1, 5), case.eta).value
    np.testing.assert_allclose(np.mean(each, axis=0), whole, rtol=1e-12, atol=1e-13)


@by_name
@pytest.mark.parametrize("method", [Neumann(Q=4, eta=0.2, S=3), RandomNeumann(Q=4, eta=0.2, S=3),
                                    Neumann(Q=4, eta=0.2, S=3, per_sample=True)], ids=["sum", "random", "per-sample"])  # fmt: skip
def test_unbiased_on_random_batches(case, method):
    """40,000 estimates on random batches: their mean is within 5 standard errors of the full-batch sum, in every
    coordinate (exceeded by chance less than once in 50,000 such tests), and the errors are small."""
    oracle, everything = make_oracle(case.problem), make_oracle(case.problem, "full")
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    draw = jax.jit(jax.vmap(lambda k: method.estimate(oracle, keys.at(keys.root(0), k), x, y).value))
    values = np.asarray(draw(jnp.arange(40_000)))
    mean = neumann.hypergrad(everything, x, y, neumann.draw(everything, keys.root(0), 1, 4), 0.2).value
    error = values.std(0) / np.sqrt(len(values))
    assert (np.abs(values.mean(0) - mean) <= 5 * error + 1e-12).all()
    assert error.max() < 0.05


def test_a_second_call_does_not_compile_again():
    traces = []
    case = PROBLEM_CASES[0]

    def inner_loss(x, y, batch):
        traces.append(1)
        return case.problem.inner_loss(x, y, batch)

    problem = replace(case.problem, inner_loss=inner_loss)
    hypergradient(problem, case.x0, case.y0, Neumann(Q=3, eta=0.2))
    before = len(traces)
    hypergradient(problem, 2 * case.x0, case.y0, Neumann(Q=3, eta=0.1), seed=4)
    assert len(traces) == before > 0


def test_length_is_uniform():
    oracle = make_oracle(PROBLEM_CASES[0].problem)
    lengths = jax.vmap(lambda k: random_neumann.draw(oracle, keys.at(keys.root(0), k), 1, 4).p)(jnp.arange(20_000))
    counts = np.bincount(lengths, minlength=5)
    assert len(counts) == 5
    assert ((counts - 4000) ** 2 / 4000).sum() < 23.5  # 4 degrees of freedom: exceeded once in 10,000


def test_the_exact_method_refuses_what_does_not_fit():
    q = quadratic()
    with pytest.raises(
        MemoryError, match=r"the exact hypergradient keeps dense matrices; a step would need at least .* GiB"
    ):
        jax.eval_shape(
            lambda y: Exact().estimate(make_oracle(q.problem), keys.root(0), q.problem.x0, y),
            jax.ShapeDtypeStruct((3_000_000,), jnp.float32),
        )


@by_name
def test_nystrom_of_all_columns_solves_the_damped_system(case):
    y = case.y0.ravel()
    H, J = case.twin.G_yy(case.x0, y, ALL), case.twin.G_xy(case.x0, y, ALL)
    w = np.linalg.solve(H + 0.3 * np.eye(len(H)), case.twin.F_y(case.x0, y, ALL))
    estimate = hypergradient(case.problem, case.x0, case.y0, Nystrom(rank=len(H), damping=0.3))
    np.testing.assert_allclose(np.ravel(estimate.value), case.twin.F_x(case.x0, y, ALL) - J @ w, rtol=1e-8, atol=1e-10)
    oracle, start = make_oracle(case.problem, "full"), (jnp.asarray(case.x0), jnp.asarray(case.y0))
    fewer = Nystrom(rank=2, damping=0.3).estimate(oracle, keys.root(0), *start)
    assert estimate.residual < 1e-8 < fewer.residual


@by_name
def test_sama_takes_the_derivative_of_adams_step(case):
    """Written out by hand: of lr m / (sqrt(s) + eps), both without their bias, by the gradient that m and s have seen."""
    y, rate, b1, b2, eps, seen = case.y0.ravel(), 0.05, 0.9, 0.999, 1e-8, 3
    g, J = case.twin.G_y(case.x0, y, ALL), case.twin.G_xy(case.x0, y, ALL)
    optimiser = optax.adam(rate, b1=b1, b2=b2, eps=eps)
    memory, m, s = optimiser.init(case.y0), np.zeros_like(y), np.zeros_like(y)
    for k in range(seen):
        past = np.cos(1.0 + k + np.arange(y.size))
        memory = optimiser.update(past.reshape(case.y0.shape), memory)[1]
        m, s = b1 * m + (1 - b1) * past, b2 * s + (1 - b2) * past**2
    c1, c2 = 1 - b1 ** (seen + 1), 1 - b2 ** (seen + 1)
    m, s = (b1 * m + (1 - b1) * g) / c1, (b2 * s + (1 - b2) * g**2) / c2
    root = np.sqrt(s)
    D = rate * ((1 - b1) / c1 / (root + eps) - m * (1 - b2) * g / c2 / root / (root + eps) ** 2)
    u = case.twin.F_y(case.x0, y, ALL)
    found = hypergradient(case.problem, case.x0, case.y0, SAMA(step=optimiser, memory=memory, distance=1e-4))
    np.testing.assert_allclose(
        np.ravel(found.value), case.twin.F_x(case.x0, y, ALL) - J @ (D * u), rtol=1e-6, atol=1e-8
    )
    H = case.twin.G_yy(case.x0, y, ALL)
    assert float(found.residual) == pytest.approx(np.linalg.norm(H @ (D * u) - u) / np.linalg.norm(u), rel=1e-5)


def test_sama_refuses_what_another_optimiser_remembers():
    case = PROBLEM_CASES[0]
    with pytest.raises(ValueError, match=r"SAMA: memory is not what the optimiser remembers of this y"):
        hypergradient(case.problem, case.x0, case.y0, SAMA(step=optax.adam(0.1), memory=optax.sgd(0.1).init(case.y0)))


def test_the_identity_is_right_where_the_hessian_is_one():
    """T1-T2 is exact for a Hessian I / alpha, and its difference is that of a product: no second derivative is asked for."""

    def inner_loss(x, y, batch):
        return 2.0 * jnp.sum((y - jnp.sin(x) * batch.mean()) ** 2)

    problem = Problem(lambda x, y, batch: jnp.sum(y**2) + x.sum() * batch.mean(), inner_loss, jnp.ones(4), jnp.ones(4))
    x, y = jnp.array([0.3, 0.7]), jnp.array([0.5, -0.2])
    expected = hypergradient(problem, x, y, Exact())
    oracle = make_oracle(problem, "full")._replace(hvp_G=None, jvp_G=None)
    found = Differences(alpha=0.25).estimate(oracle, keys.root(0), x, y)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-8)
    assert found.residual < 1e-8
    half = Differences(alpha=0.125).estimate(oracle, keys.root(0), x, y)
    assert half.residual == pytest.approx(0.5)
