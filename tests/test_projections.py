"""Convex sets for x and y, in every method; and dense matrices, bounded and refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES
from problem_cases import PROBLEM_CASES
from stepping import compare, stepped

import bilax
from bilax import Problem, solve
from bilax.hypergrad import dense
from bilax.problems import quadratic

CASE = PROBLEM_CASES[0]


def box(x):
    return jax.tree.map(lambda a: jnp.clip(a, -0.3, 0.4), x)


def ball(y):
    return y * jnp.minimum(1, 0.7 / jnp.linalg.norm(y))


@pytest.mark.parametrize("algorithm", [c for c in ALGORITHM_CASES if c.projects], ids=str)
def test_projected_iterates_equal_the_transcript(algorithm, monkeypatch):
    """Where iterates are projected; what an active constraint does to derivatives is in test_constraints.py."""
    monkeypatch.setattr("bilax.oracle.on_the_set", lambda products, *_: (products, lambda x, y, batch, r: r))
    K = 8
    problem = replace(CASE.problem, project_x=box)
    if "y" in algorithm.projects:
        problem = replace(problem, project_y=ball)
    alg = algorithm.make(eta=CASE.eta)
    states, draws = stepped(alg, problem, CASE.x0, CASE.y0, K)
    projections = {"proj": lambda x: np.clip(x, -0.3, 0.4)}
    if "y" in algorithm.projects:
        projections["proj_y"] = lambda y: y * min(1, 0.7 / np.linalg.norm(y))
    compare(states, algorithm.transcript(alg, CASE, draws, K, **projections), draws)


@pytest.mark.parametrize("algorithm", [c for c in ALGORITHM_CASES if c.projects != "xy"], ids=str)
def test_x_and_y_stay_in_their_sets(algorithm):
    problem = replace(CASE.problem, project_x=box, project_y=ball)
    if algorithm.name.startswith("reverse"):
        with pytest.raises(ValueError, match="give a problem without project_y, or take an implicit method"):
            solve(problem, algorithm.make(), CASE.x0, CASE.y0, steps=5)
        problem = replace(CASE.problem, project_x=box)
    result = solve(problem, algorithm.make(eta=0.2), CASE.x0, CASE.y0, steps=5)
    assert result.x.min() >= -0.3
    assert result.x.max() <= 0.4
    assert (jnp.abs(result.x[:, None] - jnp.array([-0.3, 0.4])) < 1e-12).any()  # the bound is active
    if not algorithm.name.startswith("reverse"):
        assert jnp.linalg.norm(result.y) <= 0.7 + 1e-12


def test_projected_methods_reach_the_constrained_minimum():
    """min Phi over x >= 0.2 on the quadratic, with full batches: compare with projected gradient descent."""
    q = quadratic(seed=5)
    x = np.ones(3)
    for _ in range(3000):
        x = np.maximum(x - 0.05 * q.gradient(x), 0.2)
    assert (x == 0.2).any()
    problem = replace(q.problem, project_x=lambda x: jnp.maximum(x, 0.2))
    for alg in (bilax.StocBiO(alpha=0.9, beta=0.05, D=20, Q=60), bilax.VRBO(alpha=0.05, beta=0.5, m=20, Q=60)):
        result = solve(problem, alg, steps=600, sampler="full")
        np.testing.assert_allclose(result.x, x, atol=1e-5)


def test_a_projection_keeps_the_dtype():
    problem = replace(CASE.problem, project_x=lambda x: np.float64(1.0) * x.astype(jnp.float64))
    result = solve(problem, bilax.TTSA(eta=0.2), jnp.asarray(CASE.x0, jnp.float32), CASE.y0, steps=2)
    assert result.x.dtype == jnp.float32


def test_a_projection_must_keep_the_shape():
    problem = replace(CASE.problem, project_x=lambda x: x[:2])
    with pytest.raises(
        TypeError, match=r"project_x must return a pytree like its argument; of shapes \(3,\) it made \(2,\)"
    ):
        solve(problem, bilax.TTSA(eta=0.2), CASE.x0, CASE.y0, steps=2)


def test_a_projection_must_be_a_function():
    with pytest.raises(TypeError, match=r"project_x must be a function of one argument, a pytree.*got float"):
        Problem(lambda x, y, b: 0.0, lambda x, y, b: 0.0, np.ones(2), np.ones(2), project_x=1.0)


def test_matrices_are_projected_onto_their_sets():
    rng = np.random.default_rng(0)
    m = dense.Matrices(jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(3, 3))))
    project = jax.jit(lambda m: dense.project(m, 0.3, 0.8))
    p = project(m)
    assert np.linalg.norm(p.xy, 2) <= 0.8 + 1e-12
    assert np.linalg.eigvalsh(p.yy).min() >= 0.3 - 1e-12
    np.testing.assert_allclose(p.yy, p.yy.T, atol=1e-14)
    again = project(p)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), again, p)
    for _ in range(30):  # nearest: no feasible matrix is closer
        other = project(jax.tree.map(lambda a: a + 0.3 * rng.normal(size=a.shape), p))
        sym = (m.yy + m.yy.T) / 2
        assert np.linalg.norm(other.yy - sym) >= np.linalg.norm(p.yy - sym) - 1e-9
        assert np.linalg.norm(other.xy - m.xy) >= np.linalg.norm(p.xy - m.xy) - 1e-9


@pytest.mark.parametrize("method", [bilax.STABLE, bilax.RSVRB])
def test_matrices_that_do_not_fit_are_refused_before_they_are_made(method):
    x0, y0 = (jax.ShapeDtypeStruct((n,), jnp.float32) for n in (400_000, 300_000))
    needed = 6 * 4 * (400_000 * 300_000 + 300_000**2) / 2**30
    told = rf"{method.__name__} keeps dense matrices; a step would need at least {needed:,.1f} GiB .*\(400000, 300000\)"
    with pytest.raises(MemoryError, match=told):
        method().init(None, x0, y0)
