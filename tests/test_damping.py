"""Inner Hessians that are singular or not positive definite: damping, the Gauss-Newton product, what is said."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilax
from bilax.errors import Doubtful
from bilax.hypergrad import ConjugateGradient, Exact, FixedPoint, Neumann, Subspace, Unrolled
from bilax.oracle import traced
from bilax.problems import quadratic
from bilax.running.inspection import whole

SADDLE = np.diag([1.0, -0.5, 2.0])


def saddle(**options):
    """An inner loss with one direction of negative curvature."""
    return bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)),
        inner_loss=lambda x, y, batch: 0.5 * y @ SADDLE @ y - x @ y + 0 * jnp.sum(batch),
        outer_data=np.ones((8, 3)),
        inner_data=np.zeros((8, 3)),
        x0=np.array([0.3, 0.2, 0.1]),
        y0=np.array([0.1, -0.2, 0.3]),
        **options,
    )


@pytest.mark.parametrize(
    "method", [Exact(), ConjugateGradient(N=3), Neumann(Q=400, eta=0.3), FixedPoint(N=400, eta=0.3), Subspace(N=60, eta=0.3)],
    ids=lambda method: type(method).__name__,
)  # fmt: skip
def test_every_linear_system_is_damped(method):
    problem = saddle(damping=1.0)
    y = problem.y0
    expected = np.linalg.solve(SADDLE + np.eye(3), 2 * (y - 1))  # the mixed Jacobian is minus the identity
    np.testing.assert_allclose(bilax.hypergradient(problem, problem.x0, y, method).value, expected, rtol=1e-5)


def test_conjugate_gradients_stop_at_negative_curvature_and_say_so():
    problem = saddle()
    with pytest.warns(Doubtful, match=r"negative curvature.*Problem\(damping="):
        found = bilax.hypergradient(problem, problem.x0, problem.y0, ConjugateGradient(N=50))
    assert bool(found.negative)
    assert np.isfinite(found.value).all()
    assert not bilax.hypergradient(saddle(damping=1.0), problem.x0, problem.y0, ConjugateGradient(N=3)).negative


def test_a_run_says_that_it_met_negative_curvature():
    with pytest.warns(Doubtful, match="met negative curvature at"):
        bilax.solve(saddle(), bilax.AIDCG(alpha=0.01, beta=0.01, T=2, N=5, S=4), steps=40, every=10)
    result = bilax.solve(saddle(damping=1.0), bilax.AIDCG(alpha=0.001, beta=0.001, T=2, N=5, S=4), steps=40, every=10)
    assert not any("curvature" in warning for warning in result.warnings)


def test_differentiation_through_steps_is_not_damped():
    plain, damped = saddle(), saddle(damping=5.0)
    for step in (0.1, optax.adam(0.1)):
        a, b = (bilax.hypergradient(p, p.x0, p.y0, Unrolled(step=step, T=4)).value for p in (plain, damped))
        np.testing.assert_array_equal(a, b)


def test_a_solution_is_judged_without_damping():
    q = quadratic()
    damped = bilax.Problem(**{**vars(q.problem), "damping": 3.0})
    oracle = whole(traced(damped, "iid"))
    x, y, r = q.problem.x0, np.ones(4), np.arange(4.0)
    np.testing.assert_allclose(oracle.hvp_G(x, y, (), r), q._mean["A"] @ r)


@pytest.mark.parametrize("damping", [-1.0, np.inf, "much", True])
def test_a_bad_damping_is_refused(damping):
    with pytest.raises((ValueError, TypeError)):
        saddle(damping=damping)


def network(**options):
    def outputs(x, y, batch):
        return jnp.tanh(batch["a"] @ y["W"]) @ y["v"]

    def loss(x, y, z, batch):
        penalty = 0.5 * jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean((z - batch["t"]) ** 2) + penalty

    model = bilax.GaussNewton(outputs, loss)
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=(40, 3)), "t": rng.normal(size=40)}
    y0 = {"W": rng.normal(size=(3, 4)), "v": rng.normal(size=4)}
    problem = bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean((outputs(x, y, batch) - batch["t"]) ** 2),
        inner_loss=model.inner_loss,
        outer_data=data,
        inner_data=data,
        x0=np.array(-6.0),
        y0=y0,
        second_derivatives=model,
        **options,
    )
    return problem, model


def dense(problem):
    flat, unravel = jax.flatten_util.ravel_pytree(problem.y0)
    oracle = bilax.make_oracle(problem, "full")
    batch = oracle.draw_G(jax.random.key(0), 40)
    columns = [oracle.hvp_G(problem.x0, problem.y0, batch, unravel(e)) for e in np.eye(flat.size)]
    return np.stack([jax.flatten_util.ravel_pytree(column)[0] for column in columns])


def test_the_gauss_newton_product_is_that_of_the_outputs_jacobian():
    problem, model = network()
    flat, unravel = jax.flatten_util.ravel_pytree(problem.y0)
    J = jax.jacobian(lambda y: model.outputs(None, unravel(y), problem.inner_data))(flat)
    expected = 2 * J.T @ J / 40 + np.exp(-6.0) * np.eye(flat.size)
    found = dense(problem)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.linalg.eigvalsh(found)[0] > 0
    exact = dense(bilax.Problem(**{**vars(problem), "second_derivatives": "forward"}))
    assert np.linalg.eigvalsh(exact)[0] < 0  # the Hessian itself is not


def test_the_gauss_newton_product_of_a_model_with_dropout():
    def outputs(x, y, batch, key):
        keep = 1.0 if key is None else jax.random.bernoulli(key, 0.5, (3,)) / 0.5
        return jnp.tanh((batch * keep) @ y)

    model = bilax.GaussNewton(outputs, lambda x, y, z, batch: jnp.mean(z**2))
    data = np.random.default_rng(0).normal(size=(8, 3))
    problem = bilax.Problem(
        lambda x, y, batch: jnp.sum(y**2),
        model.inner_loss,
        outer_data=None,
        inner_data=(10 * data).astype(np.int8),
        x0=np.zeros(1),
        y0=np.ones(3),
        second_derivatives=model,
        prepare=lambda batch: batch / 10,
    )
    oracle = bilax.make_oracle(problem, "full")
    drawn = oracle.draw_G(jax.random.key(3), 8)
    key = jax.random.wrap_key_data(drawn.bits[0], impl="threefry2x32")
    J = jax.jacobian(lambda y: outputs(None, y, problem.inner_data / 10, key))(problem.y0)
    for r in np.eye(3):
        np.testing.assert_allclose(
            oracle.hvp_G(problem.x0, problem.y0, drawn, r), 2 * J.T @ (J @ r) / 8, rtol=1e-6, atol=1e-12
        )


@pytest.mark.parametrize("name", ["mrbo", "soba", "aid-cg", pytest.param("vrbo", marks=pytest.mark.slow)])
def test_methods_run_with_it_and_with_prepared_batches(name):
    problem, _ = network()
    wide, _ = network(prepare=lambda batch: {"a": batch["a"] * 2, "t": batch["t"]})
    halved = {"a": problem.inner_data["a"] / 2, "t": problem.inner_data["t"]}
    prepared = bilax.Problem(**{**vars(wide), "inner_data": halved, "outer_data": halved})
    runs = [bilax.iterate(p, bilax.ALGORITHMS[name](), steps=3).state.x for p in (problem, prepared)]
    np.testing.assert_allclose(*runs, rtol=1e-6)
    assert np.isfinite(runs[0]).all()
