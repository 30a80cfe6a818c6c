"""Declared cost equals counted calls, for every algorithm."""

import jax
import jax.numpy as jnp
import pytest
from cases import ALGORITHM_CASES, PROBLEM_CASES

from bilax import Counts, keys, solve
from bilax.oracle import make_oracle
from bilax.testing import counting

CASE = PROBLEM_CASES[0]


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES, ids=str)
@pytest.mark.parametrize("eta", [0.2, "auto"])
def test_declared_cost_is_what_is_called(algorithm, eta):
    alg = algorithm.make(eta=eta)
    oracle, tally = counting(make_oracle(CASE.problem))
    step = jax.jit(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s))
    state = alg.init(jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    declared = Counts()
    for k in range(6):
        state, info = step(state)
        declared += alg.cost(k) + Counts(HV=int(info.HV))
        assert tally.counts == declared, f"after step {k}"
    if eta == "auto":
        assert declared.HV > sum(alg.cost(k).HV for k in range(6))  # L was measured at least once


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES, ids=str)
def test_solve_reports_the_sum(algorithm):
    alg = algorithm.make(eta=0.2)
    result = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=7)
    assert result.counts == sum((alg.cost(k) for k in range(7)), Counts())
    assert result.history[-1]["HV"] == result.counts.HV


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES, ids=str)
def test_full_batches_count_all_samples(algorithm):
    alg = algorithm.make(eta=0.2)
    oracle, tally = counting(make_oracle(CASE.problem, "full"))
    step = jax.jit(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s)[0])
    state = alg.init(jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    for _ in range(5):
        state = step(state)
    result = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=5, sampler="full")
    assert result.counts == tally.counts


def test_full_batches_of_unequal_data():
    from bilax.problems import quadratic

    problem = quadratic(inner_size=30, outer_size=20).problem
    result = solve(problem, ALGORITHM_CASES[0].make(Q=3), steps=4, sampler="full")
    assert result.counts == 4 * 2 * Counts(F=20, G=30, JV=30, HV=90)
