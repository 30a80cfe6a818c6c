"""The quadratic's closed forms, its constants, and convergence on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES, METHOD_CASES

from bilax import solve
from bilax.problems import quadratic

Q = quadratic(seed=5)
X = np.array([0.3, -1.2, 0.7])


def test_y_star_is_the_inner_minimum():
    y = Q.y_star(X)
    gradient = jax.grad(Q.problem.inner_loss, argnums=1)(jnp.asarray(X), jnp.asarray(y), Q.problem.inner_data)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_Phi_and_its_gradient():
    y = jnp.asarray(Q.y_star(X))
    np.testing.assert_allclose(Q.Phi(X), Q.problem.outer_loss(jnp.asarray(X), y, Q.problem.outer_data), rtol=1e-12)
    h = 1e-5
    slopes = [(Q.Phi(X + h * e) - Q.Phi(X - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(Q.gradient(X), slopes, atol=1e-8)
    np.testing.assert_allclose(Q.gradient(Q.x_star), 0, atol=1e-10)


def test_metrics():
    measured = Q.problem.metrics(jnp.asarray(X), jnp.zeros(4))
    np.testing.assert_allclose(measured["Phi"], Q.Phi(X))
    np.testing.assert_allclose(measured["grad_norm2"], (Q.gradient(X) ** 2).sum())
    np.testing.assert_allclose(measured["inner_gap"], np.linalg.norm(Q.y_star(X)))


def test_constants_hold_at_random_points_of_the_ball_for_every_sample():
    radius = 3.0
    c = Q.constants(radius)
    problem = Q.problem
    rng = np.random.default_rng(0)
    single = lambda data: jax.tree.map(lambda a: a[:, None], data)
    F = jax.jit(jax.vmap(jax.grad(problem.outer_loss, argnums=(0, 1)), (None, None, 0)))
    G = jax.jit(jax.vmap(jax.grad(problem.inner_loss, argnums=(0, 1)), (None, None, 0)))
    joined = lambda parts: np.concatenate(parts, axis=1)
    H = jax.vmap(jax.hessian(problem.inner_loss, argnums=1), (None, None, 0))(
        jnp.zeros(3), jnp.zeros(4), single(problem.inner_data)
    )
    assert np.linalg.eigvalsh(H).min() >= c.mu - 1e-12
    np.testing.assert_allclose(np.linalg.eigvalsh(H).min(), c.mu)
    largest = 0.0
    for _ in range(20):
        z, w = (rng.normal(size=7) for _ in range(2))
        z, w = (radius * rng.uniform() * a / np.linalg.norm(a) for a in (z, w))
        at = lambda f, data, z: joined(f(z[:3], z[3:], single(data)))
        Fz, Fw = at(F, problem.outer_data, z), at(F, problem.outer_data, w)
        Gz, Gw = at(G, problem.inner_data, z), at(G, problem.inner_data, w)
        assert np.linalg.norm(Fz, axis=1).max() <= c.M
        distance = np.linalg.norm(z - w)
        largest = max(largest, np.linalg.norm(Gz - Gw, axis=1).max() / distance)
        assert np.linalg.norm(Fz - Fw, axis=1).max() <= c.L * distance * (1 + 1e-12)
        assert ((Gz - Gz.mean(0)) ** 2).sum(1).mean() <= c.sigma**2
    assert 0.5 * c.L < largest <= c.L
    assert c.tau == c.rho == 0


def test_samples_differ_in_gradient_hessian_and_jacobian():
    problem = Q.problem
    one, other = (jax.tree.map(lambda a, i=i: a[i : i + 1], problem.inner_data) for i in (0, 1))
    x, y = jnp.asarray(X), jnp.ones(4)
    for derivative in (
        jax.grad(problem.inner_loss, 1),
        jax.hessian(problem.inner_loss, 1),
        jax.jacobian(jax.grad(problem.inner_loss, 1), 0),
    ):
        assert np.abs(derivative(x, y, one) - derivative(x, y, other)).max() > 1e-3


CLOSED_FORM = {  # problem, and the squared norm of the true gradient to reach with the same settings
    "quadratic": (Q, 1e-3),
    "another": (quadratic(p=5, q=3, mu=0.4, L=0.8, noise=0.2, delta=0.3, seed=8), 2e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [*((c, "quadratic") for c in ALGORITHM_CASES), *((c, "another") for c in METHOD_CASES)],
    ids=str,
)
def test_converges(algorithm, name):
    """With noisy batches; the second problem starts at a squared norm of 170."""
    (problem, target), (alg, steps) = CLOSED_FORM[name], algorithm.converges
    result = solve(problem.problem, alg, steps=steps)
    assert result.status == "done"
    assert result.history[0]["grad_norm2"] > 50
    assert result.history[-1]["grad_norm2"] <= algorithm.biased * target
