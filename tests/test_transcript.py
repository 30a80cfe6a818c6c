"""The library against the NumPy transcript of the paper, on the batches that the library drew."""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest
import transcript
from batch_layouts import numbers, series
from cases import ALGORITHM_CASES
from problem_cases import PROBLEM_CASES, final_state
from seldom import VARIANTS
from stepping import compare, oracle_of, stepped

from bilax.hypergrad import neumann
from bilax.sampling import keys
from bilax.testing import python_loops, recording

K, LONG = 9, 20  # two periods of VRBO's q = 4 and one step more; in the slow set five periods, where there are any


@pytest.mark.parametrize(
    "name", ["baselines_check", *sorted(p.stem for p in Path(__file__).parent.glob("transcript*.py"))]
)
def test_transcripts_check_themselves(name, capsys):
    importlib.import_module(name).check()
    assert "all checks passed" in capsys.readouterr().out


EVERY = [(algorithm, case, "iid") for algorithm in ALGORITHM_CASES for case in PROBLEM_CASES]
SHUFFLED = [
    (algorithm, PROBLEM_CASES[0], "epoch") for algorithm in ALGORITHM_CASES if algorithm.name in ("mrbo", "stocbio")
]
PERIODIC = [row for row in EVERY if row[0].name.startswith(("vrbo", "saba", "srba", "spaba"))]  # or with a table
# The first steps of a long run need not be shown by a short one as well, unless it is in the quick set.
SHOWN = [row for row in PERIODIC if (row[1].name == "quadratic" and row[0].name != "vrbo") or row[0].name in VARIANTS]


@pytest.mark.parametrize(
    ("K", "algorithm", "case", "sampler"),
    [(K, *row) for row in EVERY + SHUFFLED if row not in SHOWN]
    + [pytest.param(LONG, *row, marks=pytest.mark.slow) for row in PERIODIC],
    ids=lambda value: getattr(value, "name", value),
)
def test_iterates_equal_the_transcript(K, algorithm, case, sampler):
    alg = algorithm.make(eta=case.eta)
    states, draws = stepped(alg, case.problem, case.x0, case.y0, K, sampler)
    rows = algorithm.transcript(alg, case, draws, K)
    compare(states, rows, draws)
    # and the compiled program takes the same steps
    compiled = final_state(case, alg, K, seed=7, sampler=sampler)
    np.testing.assert_allclose(np.ravel(compiled.x), rows[-1]["x"], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.ravel(compiled.y), rows[-1]["y"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_batches_of_one_step_differ(case):
    """B_F, B_G, B_1, ..., B_Q are independent; a sampler that hands out one batch twice would go unnoticed above."""
    oracle, drawn = recording(oracle_of(case.problem))
    alg = ALGORITHM_CASES[0].make(Q=4, S=12)
    with python_loops():
        alg.step(oracle, keys.at(keys.root(0), 3), alg.init(oracle, case.x0, case.y0))
    batches = {tuple(numbers(batch)) for _, batch in drawn.take()}
    assert len(batches) == 3 + 4


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("Q", [1, 2, 5])
def test_estimators_equal_equations_4_and_5(case, Q):
    oracle, drawn = recording(oracle_of(case.problem))
    x, y = jax.numpy.asarray(case.x0), jax.numpy.asarray(case.y0)
    with python_loops():
        oracle.draw_G(keys.root(1), 1)  # stands for B_y
        B = neumann.draw(oracle, keys.root(5), 6, Q)
        batchwise = neumann.hypergrad(oracle, x, y, B, 0.3)
        draws = series(drawn.take())
        chains = neumann.hypergrad_per_sample(oracle, x, y, B, 0.3)
    flat = case.y0.ravel()
    expected_4 = transcript.equation4(case.twin, case.x0, flat, draws.B_F, draws.B_G, draws.B, 0.3)
    expected_5 = transcript.equation5(case.twin, case.x0, flat, draws.B_F, draws.B_G, draws.B, 0.3)
    np.testing.assert_allclose(batchwise.value, expected_4, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(chains.value, expected_5, rtol=1e-12, atol=1e-12)
    assert np.abs(expected_4 - expected_5).max() > 1e-4
