"""A run that ends where a function of its history says."""

import pytest

from bilax import MRBO, solve
from bilax.problems import quadratic


@pytest.fixture(scope="module")
def problem():
    return quadratic(seed=0).problem


def test_a_run_ends_where_stop_says(problem):
    method = MRBO(gamma=0.1, lam=0.1, S=8)
    whole = solve(problem, method, steps=40, every=5)
    stopped = solve(problem, method, steps=40, every=5, stop=lambda history: history[-1]["k"] > 12)
    assert stopped.status == "stopped"
    assert stopped.message == "stopped after 15 steps, as the function stop wanted."
    assert [row["outer_loss"] for row in stopped.history] == [row["outer_loss"] for row in whole.history[:4]]


def test_a_run_that_has_stopped_stays_so_in_its_folder(problem, tmp_path):
    method = MRBO(gamma=0.1, lam=0.1, S=8)
    runs = [
        solve(problem, method, steps=40, every=5, stop=lambda history: len(history) == 3, checkpoint_dir=tmp_path)
        for _ in range(2)
    ]
    assert [run.status for run in runs] == ["stopped", "stopped"]
    assert [len(run.history) for run in runs] == [3, 3]


def test_a_stop_that_is_no_function_is_told(problem):
    with pytest.raises(TypeError, match="stop must be a function of the history"):
        solve(problem, MRBO(), steps=1, stop=3)
