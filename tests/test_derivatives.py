"""Every derivative of the oracle against central differences and the explicit matrices of the NumPy twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_cases import PROBLEM_CASES

from bilax import Problem
from bilax.oracle import at_two_points, make_oracle
from bilax.sampling import keys

BATCH = np.array([1, 4, 4, 0, 5, 23])


def take(data):
    return jax.tree.map(lambda leaf: leaf[BATCH], data)


def central(f, z, h=1e-5):
    z = np.asarray(z, float)
    flat = [(f(z + h * e.reshape(z.shape)) - f(z - h * e.reshape(z.shape))) / (2 * h) for e in np.eye(z.size)]
    return np.array(flat)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_derivatives(case):
    problem, oracle = case.problem, make_oracle(case.problem)
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    xi, zeta = take(problem.outer_data), take(problem.inner_data)
    F, G = jax.jit(problem.outer_loss), jax.jit(problem.inner_loss)
    r = jnp.asarray(np.random.default_rng(0).normal(size=y.shape))

    F_x, F_y = oracle.grad_F(x, y, xi)
    np.testing.assert_allclose(np.ravel(F_x), central(lambda z: F(z, y, xi), x), atol=1e-8)
    np.testing.assert_allclose(np.ravel(F_y), central(lambda z: F(x, z, xi), y), atol=1e-8)
    G_y = jax.jit(oracle.grad_G)
    np.testing.assert_allclose(np.ravel(G_y(x, y, zeta)), central(lambda z: G(x, z, zeta), y), atol=1e-8)
    h = 1e-5
    along = (G_y(x, y + h * r, zeta) - G_y(x, y - h * r, zeta)) / (2 * h)
    np.testing.assert_allclose(oracle.hvp_G(x, y, zeta, r), along, atol=1e-8)
    mixed = central(lambda z: float(jnp.vdot(G_y(z, y, zeta), r)), x)
    np.testing.assert_allclose(np.ravel(oracle.jvp_G(x, y, zeta, r)), mixed, atol=1e-8)

    flat, rr = case.y0.ravel(), np.ravel(r)
    np.testing.assert_allclose(np.ravel(F_y), case.twin.F_y(case.x0, flat, BATCH), atol=1e-13)
    np.testing.assert_allclose(np.ravel(F_x), case.twin.F_x(case.x0, flat, BATCH), atol=1e-13)
    np.testing.assert_allclose(np.ravel(G_y(x, y, zeta)), case.twin.G_y(case.x0, flat, BATCH), atol=1e-13)
    hvp, jvp = np.ravel(oracle.hvp_G(x, y, zeta, r)), np.ravel(oracle.jvp_G(x, y, zeta, r))
    np.testing.assert_allclose(hvp, case.twin.G_yy(case.x0, flat, BATCH) @ rr, atol=1e-13)
    np.testing.assert_allclose(jvp, case.twin.G_xy(case.x0, flat, BATCH) @ rr, atol=1e-13)


def test_no_matrix_is_ever_formed():
    """With 3,000 inner variables a Hessian would have 9 million entries; nothing in the program has."""
    n = 3000
    problem = Problem(
        outer_loss=lambda x, y, b: jnp.mean((b @ y) ** 2),
        inner_loss=lambda x, y, b: jnp.mean(jnp.log1p(jnp.exp(b @ y))) + jnp.sum(jnp.exp(x) * y**2),
        outer_data=np.ones((8, n)),
        inner_data=np.ones((8, n)),
    )
    oracle = make_oracle(problem, "full")
    y = jnp.ones(n)
    for product in (oracle.hvp_G, oracle.jvp_G):
        text = str(jax.make_jaxpr(product)(y, y, problem.inner_data, y))
        assert f"{n},{n}" not in text
        assert f"8,{n}" in text


def test_both_points_share_one_read_of_the_batch():
    """Drawing depends on neither point: half the gathers and half the products, each of two columns."""
    case = PROBLEM_CASES[1]
    oracle = make_oracle(case.problem)

    def program(evaluate):
        def run(key, x, y):
            return evaluate(lambda x, y: oracle.hvp_G(x, y, oracle.draw_G(key, 6), y), (x, y), (x + 1, 2 * y))

        return jax.jit(run).lower(keys.root(0), case.x0, case.y0).as_text()

    def reads(text):  # gathers that make a batch of six rows of four features
        return sum("gather" in line and line.rstrip().endswith("tensor<6x4xf64>") for line in text.splitlines())

    together, apart = program(at_two_points), program(lambda f, new, old: (f(*new), f(*old)))
    assert 2 * together.count("dot_general") == apart.count("dot_general") > 0
    assert (reads(together), reads(apart)) == (1, 2)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_both_equals_one_after_the_other(case):
    oracle = make_oracle(case.problem)
    zeta = take(case.problem.inner_data)
    new, old = (jnp.asarray(case.x0), jnp.asarray(case.y0)), (jnp.asarray(case.x0) + 1, 2 * jnp.asarray(case.y0))
    f = lambda x, y: oracle.jvp_G(x, y, zeta, y)
    for together, alone in zip(at_two_points(f, new, old), (f(*new), f(*old)), strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-13, atol=1e-13)
