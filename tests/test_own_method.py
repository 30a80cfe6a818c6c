"""A method of one's own: an unregistered class works everywhere, and what is wrong with it is said."""

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilax
from bilax import Counts, Info, hypergrad, iterate, solve, sweep
from bilax.hyperparameters import anything, hyperparameters, inner_step, outer_step
from bilax.numerics.tree import axpy, norm
from bilax.problems import quadratic

PROBLEM = quadratic().problem


class State(NamedTuple):
    k: jax.Array
    x: jax.Array
    y: jax.Array
    mean: jax.Array


@hyperparameters
class FirstOrder:
    """grad_x F alone moves x; the state starts from an exact pass over the inner data."""

    alpha: float = outer_step(default=0.1)
    beta: float = inner_step(default=0.1)

    def init(self, oracle, x0, y0):
        mean = oracle.mean_G(lambda zeta: oracle.grad_G(x0, y0, zeta))
        return State(jnp.zeros((), jnp.int32), x0, y0, mean)

    def init_cost(self, oracle):
        return Counts(G=oracle.size_G)

    def step(self, oracle, key, s):
        key_F, key_G = jax.random.split(key)
        F_x, _ = oracle.grad_F(s.x, s.y, oracle.draw_F(key_F, 4))
        u = oracle.grad_G(s.x, s.y, oracle.draw_G(key_G, 4))
        x, y = axpy(-self.alpha, F_x, s.x), axpy(-self.beta, u, s.y)
        return State(s.k + 1, x, y, s.mean), Info(norm(F_x), norm(u), {"temperature": 0.5 * norm(x)})

    def cost(self, k):
        return Counts(F=4, G=4 if k % 2 else 8)


class Plain(NamedTuple):
    k: jax.Array
    x: jax.Array
    y: jax.Array


@hyperparameters
class Implicit:
    """x moves along what any estimator of the library says; y is given."""

    estimator: Any = anything(default=None, doc="of the hypergradient")
    alpha: float = outer_step(default=0.1)

    def init(self, oracle, x0, y0):
        return Plain(jnp.zeros((), jnp.int32), x0, y0)

    def step(self, oracle, key, s):
        found = self.estimator.estimate(oracle, key, s.x, s.y)
        return Plain(s.k + 1, axpy(-self.alpha, found.value, s.x), s.y), Info(norm(found.value), jnp.zeros(()), {})

    def cost(self, k):
        return Counts()


@pytest.mark.parametrize(
    "estimator",
    [
        hypergrad.Exact(),
        hypergrad.Neumann(Q=3, eta=0.1),
        hypergrad.ConjugateGradient(N=2),
        hypergrad.Nystrom(rank=PROBLEM.y0.size),
        hypergrad.Subspace(N=2),
        hypergrad.Differences(),
        hypergrad.SAMA(step=optax.adam(0.1)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_any_estimator_works_inside(estimator):
    expected = bilax.hypergradient(PROBLEM, PROBLEM.x0, PROBLEM.y0, estimator).value
    result = solve(PROBLEM, Implicit(estimator), steps=1, sampler="full", metrics=lambda x, y: {})
    np.testing.assert_allclose(result.x, PROBLEM.x0 - 0.1 * expected, rtol=1e-8)


def test_it_works_in_solve_iterate_and_sweep():
    result = solve(PROBLEM, FirstOrder(), steps=6)
    assert result.status == "done"
    assert result.counts == Counts(F=24, G=36 + PROBLEM.inner_size)  # what the first state took is counted
    assert result.history[-1]["temperature"] > 0
    assert np.isnan(result.history[-1]["samples"])  # it does not say how many it draws
    assert not {"eta", "growth", "diverging", "residual"} & set(result.history[-1])  # nothing that it does not tell
    np.testing.assert_allclose(iterate(PROBLEM, FirstOrder(), steps=6).state.x, result.x, rtol=1e-12)
    found = sweep(PROBLEM, [FirstOrder(alpha=a) for a in (0.1, 0.2)], steps=6)
    np.testing.assert_allclose(found.state.x[0, 0], result.x, rtol=1e-12)
    with pytest.raises(ValueError, match=r"FirstOrder has no name that could be written: it is not among bilax.ALG"):
        bilax.settings.write(FirstOrder())


def test_a_result_survives_pickle_and_goes_on():
    result = solve(PROBLEM, FirstOrder(), steps=3)
    again = pickle.loads(pickle.dumps(result.state))
    rest, whole = solve(PROBLEM, FirstOrder(), steps=2, state=again), solve(PROBLEM, FirstOrder(), steps=5)
    np.testing.assert_array_equal(rest.x, whole.x)
    assert rest.counts == Counts(F=8, G=12)  # of these steps alone: numbers 3 and 4


def test_a_class_that_is_no_pytree_is_refused():
    @dataclass
    class Plain:
        alpha: float = 0.1
        init, step, cost = FirstOrder.init, FirstOrder.step, FirstOrder.cost

    for run in (solve, iterate):
        with pytest.raises(TypeError, match=r"Plain is not a pytree.*decorate the class with"):
            run(PROBLEM, Plain(), steps=1)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda s: (s.k, s.x, s.y), r"must be a NamedTuple with k, x and y.*k, x, y are missing from tuple"),
        (lambda s: s._replace(k=0.0), r"k must be one int32 number.*got 0.0"),
    ],
)
def test_a_state_that_cannot_work_is_refused(monkeypatch, state, message):
    made = FirstOrder.init
    monkeypatch.setattr(FirstOrder, "init", lambda self, oracle, x0, y0: state(made(self, oracle, x0, y0)))
    with pytest.raises(TypeError, match=message):
        solve(PROBLEM, FirstOrder(), steps=1)
