"""A constraint on y that is active: its derivative against closed forms, and every method at the right solution."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import METHOD_CASES

from bilax import MRBO, Problem, hypergradient, iterate, solve
from bilax.hypergrad import ConjugateGradient, Exact, FixedPoint, Neumann, Unrolled
from bilax.hyperparameters import names_of

rng = np.random.default_rng(3)
ROOT = rng.normal(size=(5, 5))
A = jnp.asarray(ROOT @ ROOT.T / 5 + np.eye(5))
TARGET = jnp.asarray(rng.normal(size=5))
X = jnp.asarray(rng.normal(size=5)) * 2
RADIUS = 0.8
QUICK = ("mrbo", "aid-cg")  # the other methods are in the slow set

SETS = {
    "box": lambda y: jnp.clip(y, -0.5, 0.5),
    "simplex": optax.projections.projection_simplex,
    "ball": lambda y: optax.projections.projection_l2_ball(y, RADIUS),
}
ESTIMATORS = [
    Exact(),
    ConjugateGradient(N=5),
    Neumann(Q=400),
    FixedPoint(N=400),
]


def problem(project, metric=None):
    metric = jnp.eye(5) if metric is None else metric

    return Problem(
        outer_loss=lambda x, y, batch: jnp.sum((y - TARGET) ** 2) + 0.1 * jnp.sum(x**2) + 0 * batch.mean(),
        inner_loss=lambda x, y, batch: 0.5 * (y - x) @ metric @ (y - x) + 0 * batch.mean(),
        outer_data=jnp.zeros(2),
        inner_data=jnp.zeros(2),
        project_y=project,
    )


def solution(project, x, metric):
    def step(_, y):
        return project(y - 0.2 * metric @ (y - x))

    return jax.lax.fori_loop(0, 5000, step, project(x))


def closed_form(name, x, y):
    """The gradient of Phi where y is the projection of x itself."""
    F_y = 2 * (y - TARGET)
    if name == "box":
        through = jnp.where(jnp.abs(x) < 0.5, F_y, 0)
    elif name == "simplex":
        support = y > 0
        through = jnp.where(support, F_y - jnp.sum(jnp.where(support, F_y, 0)) / support.sum(), 0)
    else:
        out = x / jnp.linalg.norm(x)
        through = RADIUS / jnp.linalg.norm(x) * (F_y - out * (out @ F_y))
    return 0.2 * x + through


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", SETS)
def test_the_hypergradient_against_the_closed_form(name, estimator):
    y = SETS[name](X)
    assert not np.allclose(y, X)  # the constraint is active
    found = hypergradient(problem(SETS[name]), X, y, estimator)
    np.testing.assert_allclose(found.value, closed_form(name, X, y), rtol=1e-5, atol=1e-5)
    assert found.residual < 1e-6


@pytest.mark.parametrize("name", SETS)
def test_and_against_differences_where_the_inner_hessian_is_not_the_identity(name):
    def Phi(x):
        y = solution(SETS[name], x, A)
        return jnp.sum((y - TARGET) ** 2) + 0.1 * jnp.sum(x**2)

    steps = 1e-5 * jnp.eye(5)
    differences = jnp.array([(Phi(X + e) - Phi(X - e)) / 2e-5 for e in steps])
    y = solution(SETS[name], X, A)
    for estimator in (Exact(), ConjugateGradient(N=5), Neumann(Q=1000)):
        found = hypergradient(problem(SETS[name], A), X, y, estimator).value
        np.testing.assert_allclose(found, differences, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SETS)
def test_inside_the_set_nothing_changes(name):
    """Also at the centre of a ball, where its projection has no derivative."""
    inside = jnp.full(5, 0.2) if name == "simplex" else jnp.zeros(5)
    there = inside + (TARGET - TARGET.mean()) * 1e-3 if name == "simplex" else inside
    free, kept = (hypergradient(problem(project), there, inside).value for project in (lambda y: y, SETS[name]))
    if name == "simplex":  # its inside is flat: the sum of y stays 1
        np.testing.assert_allclose(kept - 0.2 * there, (free - 0.2 * there) - (free - 0.2 * there).mean(), atol=1e-6)
    else:
        np.testing.assert_array_equal(kept, free)


SCALAR = Problem(
    outer_loss=lambda x, y, batch: (y - 3) ** 2 + 0.1 * x**2 + 0 * batch.mean(),
    inner_loss=lambda x, y, batch: (y - x) ** 2 + 0 * batch.mean(),
    outer_data=jnp.zeros(2),
    inner_data=jnp.zeros(2),
    x0=jnp.array(1.6),
    y0=jnp.array(0.9),
    project_y=lambda y: jnp.clip(y, 0, 1),
)


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in METHOD_CASES if c.name != "reverse"],
    ids=str,
)
def test_every_method_finds_the_solution_at_the_bound(algorithm):
    """Phi falls up to x = 1, where y reaches its bound, and rises from there on. The start is beyond it."""
    alg = algorithm.make(eta=0.3)
    own = dict.fromkeys(names_of("outer_step", alg), 0.05) | dict.fromkeys(names_of("inner_step", alg), 0.2)
    own |= {name: 40 for name in ("T", "D") if hasattr(alg, name)}
    # Momentum takes two of them far across the kink.
    special = {
        "rsvrb": {"gamma": 0.02, "tau": 10.0, "beta": 0.5},
        "sema": {"alpha": 0.5, "beta": 0.5},
        "mstsa": {"c": 30.0},
        "sustain": {"c_b": 4.0, "c_f": 5000.0},
    }
    own |= special.get(algorithm.name, {})
    found = iterate(SCALAR, replace(alg, **own), steps=3000, sampler="full")
    assert abs(float(found.state.x) - 1) < 0.2
    assert 0 <= float(found.state.y) <= 1


def test_a_projection_without_derivative_is_refused():
    with pytest.raises(ValueError, match="give a problem without project_y"):
        hypergradient(SCALAR, 1.0, 1.0, Unrolled())

    def rounded(y):
        return jax.pure_callback(lambda y: np.clip(y, 0, 1), jax.ShapeDtypeStruct((), y.dtype), y)

    with pytest.raises(TypeError, match="project_y cannot be differentiated, so a constraint on y would be ignored"):
        solve(replace(SCALAR, project_y=rounded), MRBO(), steps=1)
