"""Declared cost equals counted calls, for every algorithm."""

import math
from collections import Counter
from dataclasses import asdict, fields

import jax
import jax.numpy as jnp
import pytest
from cases import ALGORITHM_CASES
from problem_cases import PROBLEM_CASES
from stepping import oracle_of

import bilax
from bilax import Counts, solve
from bilax.hypergrad import unrolled
from bilax.hyperparameters import Auto
from bilax.oracle import make_oracle
from bilax.running.accounting import plain
from bilax.sampling import keys
from bilax.testing import counting, python_loops, recording

CASE = PROBLEM_CASES[0]


UNKNOWN = {"d_y": 0, "n": 0, "m": 0}  # what a formula says of them, `cost` cannot know

AUTO = ("mrbo", "vrbo", "vrbo-per-sample", "sustain")


@pytest.mark.parametrize(
    ("algorithm", "eta"),
    [
        *((c, 0.2) for c in ALGORITHM_CASES),
        *(
            pytest.param(c, "auto", marks=() if c.name == "mrbo" else pytest.mark.slow)
            for c in ALGORITHM_CASES
            if c.name in AUTO
        ),
    ],
    ids=str,
)
def test_declared_cost_is_what_is_called(algorithm, eta):
    alg = algorithm.make(eta=eta)
    oracle, tally = counting(make_oracle(CASE.problem))
    step = jax.jit(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s))
    state = alg.init(oracle, jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    declared = alg.init_cost(oracle) if hasattr(alg, "init_cost") else Counts()
    assert tally.counts == declared, "after init"
    for k in range(6):
        state, info = step(state)
        declared += alg.cost(k) + plain(info.calls)
        assert tally.counts == declared, f"after step {k}"
    if isinstance(getattr(alg, "eta", None), Auto):
        assert declared.HV > sum(alg.cost(k).HV for k in range(6))  # L was measured at least once


@pytest.mark.parametrize(
    ("algorithm", "sampler"),
    [
        *((c, "full") for c in ALGORITHM_CASES if c.name in ("mrbo", "vrbo", "bsa", "stable", "aid-cg", "reverse")),
        *((c, "iid") for c in ALGORITHM_CASES if c.name in ("mrbo", "bsa")),
    ],
    ids=str,
)
def test_solve_reports_what_was_called(algorithm, sampler):
    """Also with full batches, each of which counts all samples."""
    alg = algorithm.make(eta=0.2)
    oracle, tally = counting(make_oracle(CASE.problem, sampler))
    step = jax.jit(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s)[0])
    state = alg.init(oracle, jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    for _ in range(5):
        state = step(state)
    result = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=5, sampler=sampler)
    assert result.counts == tally.counts
    assert result.history[-1]["HV"] == result.counts.HV


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES, ids=str)
def test_the_formulas_of_the_catalogue_are_the_costs(algorithm):
    alg = algorithm.make()
    values = {field.name: getattr(alg, field.name) for field in fields(alg)}
    if hasattr(alg, "last"):
        stretches, length = unrolled._stretches(alg.last)
        values |= {"last": alg.last, "kept": stretches * length}
    period = getattr(alg, "q", 1)
    declared = asdict(sum((alg.cost(k) for k in range(period)), Counts()))
    for column in ("F", "G", "JV", "HV", "HINV"):
        formula, random = alg.about.calls.get(column, "0"), alg.about.random.get(column, "0")
        certain = eval(formula, UNKNOWN, values) - eval(random, UNKNOWN, values)
        assert declared[column] / period == pytest.approx(certain), column


@pytest.mark.parametrize(
    "algorithm", [c for c in ALGORITHM_CASES if c.name not in ("vrbo-per-sample", "saba")], ids=str
)
def test_declared_draws_are_the_samples_drawn(algorithm):
    """A batch that is met again (by the other point, by the way back through a loop) counts once."""
    alg = algorithm.make(eta=0.2, S=12)  # large enough that no two batches are equal by chance
    oracle, drawn = recording(oracle_of(CASE.problem))
    state = alg.init(oracle, jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    values = {field.name: getattr(alg, field.name) for field in fields(alg)}
    made, declared = Counter(), Counter()
    with python_loops():
        for k in range(2 * getattr(alg, "q", 1)):
            state, info = alg.step(oracle, keys.at(keys.root(0), k), state)
            distinct = {(level, batch["number"].tobytes()): batch["number"].size for level, batch in drawn.take()}
            for (level, _), size in distinct.items():
                made[level] += size
            now = dict(values)
            if "Q" in now and "HV" in alg.about.random:  # a series of random length, whose mean is Q/2
                now["Q"] = 2 * int(info.calls.HV) // (int(alg.cost(0).F) or 1)
            if "refreshed" in info.own:  # by a coin, which takes the place of its chance
                now["q"] = 1 if info.refreshed else math.inf
            for level in ("F", "G"):
                declared[level] += eval(alg.about.draws[level], UNKNOWN, now)
    assert made == declared


def test_a_block_is_drawn_once_and_evaluated_once():
    """SABA draws blocks, which are not recorded: its samples are those it calls an oracle on."""
    alg = bilax.SABA(S=7)
    assert alg.draws() == (alg.cost(0).F, alg.cost(0).G)


def test_full_batches_of_unequal_data():
    from bilax.problems import quadratic

    problem = quadratic(inner_size=30, outer_size=20).problem
    result = solve(problem, ALGORITHM_CASES[0].make(Q=3), steps=4, sampler="full")
    assert result.counts == 4 * 2 * Counts(F=20, G=30, JV=30, HV=90)
    assert result.history[-1]["samples"] == 4 * (20 + 5 * 30)
