"""`bilax tune` on a problem in a file of the user's own, on scales that it measures."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import bilax
from bilax.cli import own_problem
from bilax.experiments import search

FILE = """
import jax.numpy as jnp
import bilax

problem = bilax.problems.quadratic().problem
number = 3


def make():
    return problem


def broken():
    return 1 / 0


def nowhere():
    return bilax.Problem(problem.outer_loss, problem.inner_loss, problem.outer_data, problem.inner_data)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_problem_or_a_function_that_makes_it(file):
    assert own_problem.is_own(f"{file}:problem")
    assert not own_problem.is_own("digits")
    for name in ("problem", "make"):
        assert isinstance(own_problem.load(f"{file}:{name}"), bilax.Problem)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("", ValueError, "which of its names.*its problems: problem"),
        (":number", TypeError, "must be a bilax.Problem, or return one; it is int"),
        (":nope", ValueError, "has nothing that is called 'nope'"),
        (":broken", ValueError, "mine.py, line 14: ZeroDivisionError"),
        (":nowhere", ValueError, "does not say where to start"),
    ],
)
def test_mistakes_are_told(file, name, error, words):
    with pytest.raises(error, match=words):
        own_problem.load(f"{file}{name}")
    with pytest.raises(FileNotFoundError, match=r"there is no file none\.py"):
        own_problem.load("none.py:x")


def test_an_error_of_syntax_names_its_line(file):
    file.write_text("a = 1\nb = = 2\n")
    with pytest.raises(ValueError, match=r"mine\.py, line 2: SyntaxError"):
        own_problem.load(f"{file}:a")


def test_steps_are_on_the_scales_of_the_problem():
    """The inner steps lie around 1/L, and the outer ones would move x as far in fewer steps."""
    curved = bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
        inner_loss=lambda x, y, batch: 50 * jnp.mean((y - x - batch) ** 2),
        outer_data=np.ones(100),
        inner_data=np.zeros(100),
        x0=np.zeros(()),
        y0=np.zeros(()),
    )
    axes = search.default_axes(curved, bilax.MRBO(), 100, "iid")
    assert list(axes) == ["gamma", "lam"]
    np.testing.assert_allclose(axes["lam"], np.array(search.INNER) / 100)  # L = 100
    np.testing.assert_allclose(axes["gamma"], np.array(search.OUTER) / (100 * 2), rtol=0.02)  # |grad Phi| = 2
    tenfold = search.default_axes(curved, bilax.MRBO(), 1000, "iid")
    np.testing.assert_allclose(tenfold["gamma"], np.array(axes["gamma"]) / 10, rtol=0.1)


def test_what_is_carried_is_judged_as_it_is_at_the_end():
    problem = bilax.Problem(
        outer_loss=lambda x, y, batch, carried: jnp.mean((y - batch) ** 2) + carried,
        inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
        outer_data=np.ones(10),
        inner_data=np.zeros(20),
        x0=np.zeros(()),
        y0=np.zeros(()),
        metrics=lambda x, y, carried: {"steps": carried},
        carried=np.zeros(()),
        carry=lambda carried, x, y, batch: carried + 1,
    )
    measure = search.measure_of(problem)
    assert measure(np.ones(()), np.ones(()), 2.0) == {
        "outer_loss": 2.0,
        "inner_loss": 0.0,
        "inner_gradient": 0.0,
        "steps": 2.0,
    }
    seen = lambda *point: measure(*point)["steps"]
    trials = search.search(problem, [bilax.SOBA(gamma=0.1), bilax.SOBA(gamma=0.2)], seen, steps=8, rungs=1)
    assert [trial.score for trial in trials] == [8.0, 8.0]


def test_a_setting_that_diverges_later_is_behind_one_that_was_not_run_as_far():
    problem = bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
        inner_loss=lambda x, y, batch: jnp.mean((y - x) ** 2),
        outer_data=np.full(10, 10.0),
        inner_data=np.zeros(20),
        x0=np.zeros(()),
        y0=np.zeros(()),
    )
    settings = [bilax.AIDCG(alpha=alpha, beta=0.4, T=5) for alpha in (1e-4, 1e-3, 2e-3, 4e-3)]
    far = lambda x, y: np.inf if x > 1 else -float(x)  # the largest step is the best one, until it is too far
    trials = search.search(problem, settings, far, steps=40, rungs=2)
    assert trials[-1].steps == 40
    assert trials[-1].algorithm.alpha == 4e-3
    assert trials[0].algorithm.alpha == 2e-3
