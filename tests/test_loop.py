"""The one loop: going on bit for bit, a NaN that is not silent, a zero that is not convergence, costs in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES, METHOD_CASES
from problem_cases import PROBLEM_CASES

from bilax import MRBO, Counts, Doubtful, Problem, iterate, make_oracle, solve, sweep
from bilax.oracle import traced
from bilax.problems import quadratic
from bilax.running.accounting import Account
from bilax.sampling import keys

CASE = PROBLEM_CASES[0]
PROBLEM = quadratic().problem


def test_going_on_from_a_state_of_iterate_and_with_a_start_beside_it():
    state = iterate(PROBLEM, MRBO(S=4, eta=0.2), steps=3).state
    whole = solve(PROBLEM, MRBO(S=4, eta=0.2), steps=5)
    np.testing.assert_allclose(solve(PROBLEM, MRBO(S=4, eta=0.2), steps=2, state=state).x, whole.x, rtol=1e-12)
    with pytest.raises(ValueError, match="state says where to go on; leave x0 and y0 out"):
        solve(PROBLEM, MRBO(), PROBLEM.x0, steps=1, state=state)
    with pytest.raises(TypeError, match="must be a NamedTuple with k, x and y"):
        solve(PROBLEM, MRBO(), steps=1, state={"x": 1})


def test_going_on_with_another_kind_of_eta():
    """From a number to "auto", L is measured anew; from "auto" to a number, nothing of it is left."""
    fixed, auto = (MRBO(S=4, eta=eta) for eta in (0.2, "auto"))
    for first, second in ((fixed, auto), (auto, fixed)):
        state = solve(PROBLEM, first, steps=3).state
        rest, bare = (solve(PROBLEM, second, steps=2, state=s) for s in (state, iterate(PROBLEM, first, steps=3).state))
        assert (rest.state.memory.curvature is None) == (second is fixed)
        np.testing.assert_allclose(rest.x, bare.x, rtol=1e-12)


def test_a_nan_in_iterate_or_sweep_is_not_silent():
    settings = [MRBO(gamma=gamma, lam=lam, S=4, eta=0.3) for gamma, lam in ((0.01, 0.1), (1e200, 1e200))]
    with pytest.warns(Doubtful, match=r"2 of 4 runs met numbers that are not finite \(the first: 1, 0\)"):
        found = sweep(PROBLEM, settings, steps=12, seeds=[0, 1])
    assert found.status.names.tolist() == [["done", "done"], ["diverged", "diverged"]]
    assert (np.asarray(found.status.steps) == [[12, 12], [12, 12]]).tolist()[0] == [True, True]
    with pytest.warns(Doubtful, match="the run met numbers that are not finite"):
        wild = iterate(PROBLEM, settings[1], steps=12)
    assert str(wild.status) == "diverged"
    assert 0 < int(wild.status.steps) < 12
    assert str(jax.jit(lambda: iterate(PROBLEM, settings[0], steps=2).status)()) == "done"


def test_tol_does_not_take_the_zero_of_the_start_for_convergence():
    """v_0 = 0 and F does not depend on x: the first estimate is exactly 0, and says nothing."""
    from dataclasses import dataclass
    from typing import NamedTuple

    from bilax import Info

    class State(NamedTuple):
        k: jax.Array
        x: jax.Array
        y: jax.Array
        v: jax.Array

    @jax.tree_util.register_static
    @dataclass(frozen=True)
    class Late:
        """Moves x along an average that starts at 0 and lags one step behind."""

        def init(self, oracle, x0, y0):
            return State(jnp.zeros((), jnp.int32), x0, y0, jnp.zeros_like(x0))

        def step(self, oracle, key, s):
            y = s.y - 0.1 * oracle.grad_G(s.x, s.y, oracle.draw_G(key, 3))
            return State(s.k + 1, s.x - 0.1 * s.v, y, s.x), Info(jnp.abs(s.v), 1.0)

        def cost(self, k):
            return Counts()

    loss = lambda x, y, b: jnp.mean((y - b) ** 2)
    problem = Problem(loss, loss, np.ones(3), np.ones(3))
    result = solve(problem, Late(), 1.0, 0.0, steps=500, tol=1e-3)
    assert result.status == "converged"
    assert int(result.state.k) > 5
    assert "converged after" in result.message


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES, ids=str)
@pytest.mark.parametrize("sampler", ["iid", "full"])
def test_costs_in_closed_form_are_the_sums(algorithm, sampler):
    account = Account(algorithm.make(), traced(CASE.problem, sampler))
    assert account.period is not None
    for first, last in ((0, 1), (0, 11), (3, 17), (5, 5)):
        assert account.between(first, last) == sum((account.cost(k) for k in range(first, last)), Counts())


@pytest.mark.parametrize("algorithm", [c for c in METHOD_CASES if hasattr(c.make(), "eta")], ids=str)
def test_a_step_alone_measures_for_itself(algorithm):
    """Without the loop, eta="auto" is measured at every step."""
    alg = algorithm.make(eta="auto")
    oracle = make_oracle(CASE.problem)
    state = alg.init(oracle, jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    state, info = jax.jit(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s))(state)
    expected = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=1)
    np.testing.assert_allclose(state.x, expected.x, rtol=1e-12)
    assert int(info.calls.HV) > 0
