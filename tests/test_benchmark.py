"""The field's benchmark: its problems against finite differences, its recipes, searches, runs and ranking."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from real_data import needs_data
from typer.testing import CliRunner

import bilax
from bilax import datasets, settings
from bilax.benchmark import ranking, runs
from bilax.benchmark.methods import GRIDS, METHODS, PUBLISHED, TASKS, methods_for
from bilax.cli.app import app
from bilax.experiments.tasks import Task
from bilax.problems import benchmark
from bilax.problems.split import Split

KINDS = {
    "feature": (benchmark.penalty_per_feature, benchmark.exact_penalty_per_feature),
    "class": (benchmark.penalty_per_class, benchmark.exact_penalty_per_class),
    "sample": (benchmark.weight_per_sample, benchmark.exact_weight_per_sample),
}


def table(kind, rows=60, features=5):
    rng = np.random.default_rng(3)
    X, X_val = (rng.normal(size=(n, features)).astype(np.float32) for n in (rows, rows // 2))
    W = rng.normal(size=(features, 3))
    label = (lambda X: np.sign(X @ W[:, 0]).astype(np.float32)) if kind == "feature" else (lambda X: (X @ W).argmax(1))
    return Split(X, label(X), X_val, label(X_val))


@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_gradient_is_that_of_the_exact_value(kind):
    make, make_exact = KINDS[kind]
    data = table(kind)
    problem, exact = make(data), make_exact(data)
    x = np.asarray(problem.x0, np.float64) + np.random.default_rng(0).normal(size=problem.x0.shape) * 0.3
    start = np.asarray(problem.y0, np.float64).reshape(5, -1)
    _, gradient, Y = exact.value_and_gradient(x, start)
    for i in range(0, len(x), max(1, len(x) // 5)):
        near = np.eye(len(x))[i] * 1e-4
        up, down = (exact.value_and_gradient(x + sign * near, Y)[0] for sign in (1, -1))
        assert (up - down) / 2e-4 == pytest.approx(gradient[i], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_inner_solution_is_one_of_the_loss_that_methods_see(kind):
    make, make_exact = KINDS[kind]
    data = table(kind)
    problem = make(data)
    Y = make_exact(data).solution(np.asarray(problem.x0, np.float64), np.zeros((5, 1 if kind == "feature" else 3)))
    here = Y.reshape(problem.y0.shape)
    gradient = jax.grad(problem.inner_loss, 1)(problem.x0.astype(float), here, problem.inner_data)
    assert np.linalg.norm(gradient) < 1e-9
    told = problem.metrics(problem.x0, here)
    assert told["inner_gap"] < 1e-8
    assert told["val_loss"] == pytest.approx(float(problem.outer_loss(problem.x0, here, problem.outer_data)))
    assert np.isnan(told["gap"])  # nobody looked for the minimum of this one


def test_a_large_problem_is_solved_without_factors(monkeypatch):
    data = table("class")
    _, dense, _ = benchmark.exact_penalty_per_class(data).value_and_gradient(np.full(3, -2.0), np.zeros((5, 3)))
    monkeypatch.setattr("bilax.problems.exact.DENSE", 3)
    _, iterative, _ = benchmark.exact_penalty_per_class(data).value_and_gradient(np.full(3, -2.0), np.zeros((5, 3)))
    np.testing.assert_allclose(iterative, dense, rtol=1e-8)


def test_a_solution_that_was_not_found_is_not_reported(monkeypatch):
    data, x, start = table("class"), np.full(3, -2.0), np.zeros((5, 3))
    monkeypatch.setattr("bilax.problems.exact.MOST_NEWTON", 1)
    value, gradient, Y = benchmark.exact_penalty_per_class(data).value_and_gradient(x, start)
    assert np.isnan(value)
    assert np.isnan(gradient).all()
    assert np.isnan(Y).all()


def test_penalties_beyond_all_numbers_break_nothing():
    data = table("class")
    problem, y = benchmark.penalty_per_class(data), jnp.zeros((5, 3))
    large = problem.metrics(jnp.array([-2.0, 60.0, -2.0]), y)  # a class of which nothing is left
    assert large["grad_norm2"] < 1
    for x in (jnp.array([-2.0, 800.0, -2.0]), jnp.full(3, 3e38)):
        assert np.isnan(problem.metrics(x, y)["gap"])
    assert np.isfinite(problem.metrics(jnp.full(3, -2.0), y)["grad_norm2"])  # and what was made of them is forgotten


def test_the_simulated_quadratic_tells_its_own_gradient():
    problem = benchmark.simulated(inner_size=200, outer_size=150, q=8, p=3)
    x, inner, outer = np.array([0.3, -1.0, 0.5]), problem.inner_data, problem.outer_data

    def phi(x):
        gradient = jax.grad(problem.inner_loss, 1)
        hessian = jax.hessian(problem.inner_loss, 1)(x, np.zeros(8), inner)
        return problem.outer_loss(x, -np.linalg.inv(hessian) @ gradient(x, np.zeros(8), inner), outer)

    found = jax.grad(phi)(x)
    told = problem.metrics(x, np.zeros(8))
    assert told["grad_norm2"] == pytest.approx(float(found @ found), rel=1e-5)
    assert told["gap"] > 0


def test_every_method_has_a_recipe_and_every_published_step_is_of_one():
    made = {settings.name_of(recipe(0.1, 0.1)) for recipe in METHODS.values()}
    assert made == set(bilax.ALGORITHMS)
    assert {task.data for task in TASKS} == set(GRIDS)
    assert {task.name for task in TASKS} == set(PUBLISHED)
    assert all(set(steps) <= set(METHODS) for steps in PUBLISHED.values())
    assert all(len(inner) * len(ratios) == 25 for inner, ratios in GRIDS.values())
    assert "STABLE" not in methods_for(Task("covtype"))


def ended(method, values):
    return [{"method": method, "status": "timeout", "gap": value} for value in values]


def test_a_place_is_claimed_only_where_bands_part():
    some = [
        *ended("first", [1.0, 1.1, 1.2]),
        *ended("second", [2.0, 3.0, 4.0]),
        *ended("near", [2.5, 3.5, 4.5]),
        {"method": "gone", "status": "diverged", "gap": 0.1},
    ]
    places = {place.method: (place.first, place.last) for place in ranking.ranking(some)}
    assert places == {"first": (1, 1), "second": (2, 3), "near": (2, 3), "gone": (4, 4)}
    assert "| 2 to 3 | second | 3 | 2 to 4 | 3 |" in ranking.markdown("a problem", ranking.ranking(some))


@pytest.mark.slow
def test_the_command_shows_a_problem_quickly_and_goes_on(tmp_path):
    arguments = ["reproduce", "benchmark", "--quick", "--only", "simulated", "--budget", "0.1", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    table = (tmp_path / "benchmark.md").read_text()
    assert set(re.findall(r"\| (\w+) \| [\d.e+-]+ \|", table)) == set(PUBLISHED["simulated"])
    assert (tmp_path / "report.html").stat().st_size > 10_000
    before = {path: path.stat().st_mtime for path in tmp_path.glob("simulated*/rows.jsonl")}
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert before == {path: path.stat().st_mtime for path in before}


def test_a_word_that_nothing_has_in_its_name(tmp_path):
    said = CliRunner().invoke(app, ["reproduce", "benchmark", "--only", "nonsense", "--out", str(tmp_path / "out")])
    assert said.exit_code != 0
    assert isinstance(said.exception, ValueError)
    assert "no problem and no method of the benchmark has 'nonsense' in its name" in str(said.exception)


@pytest.mark.slow
def test_a_search_finds_steps_and_remembers_them(tmp_path, monkeypatch):
    found = runs.searched(Task("simulated"), ["SOBA"], tmp_path, scale=0.01)
    monkeypatch.setattr(runs, "_search", None)
    assert runs.searched(Task("simulated"), ["SOBA"], tmp_path, scale=0.01) == found
    inner, outer, most = found["SOBA"]
    (job,) = runs.jobs(Task("simulated"), "searched", found, [0], 1.0)
    assert job.steps == most >= 4  # no run goes further
    assert inner in GRIDS["simulated"][0]
    assert any(inner / outer == pytest.approx(ratio) for ratio in GRIDS["simulated"][1])


@needs_data
def test_the_data_have_their_published_sizes():
    assert [part.shape for part in datasets.ijcnn1()[::2] if part is not None] == [(49_990, 22), (91_701, 22)]
    assert set(datasets.ijcnn1().labels) == {-1, 1}


@needs_data
@pytest.mark.slow
def test_larger_data_have_their_published_sizes():
    assert [len(part) for part in datasets.covtype()[::2]] == [371_847, 92_962, 116_203]
    data = datasets.mnist_replaced(0.5)
    assert [part.shape for part in data[::2]] == [(20_000, 784), (5_000, 784), (10_000, 784)]
