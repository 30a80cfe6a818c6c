"""The search over a grid: the same iterates as single runs, one compilation, the promising settings further."""

import jax.numpy as jnp
import numpy as np
import pytest

import bilax
from bilax import settings
from bilax.experiments import search
from bilax.problems import quadratic

Q = quadratic(seed=0, noise=0.1)
PROBLEM = Q.problem


def distance(x, y):
    return float(jnp.sum((x - Q.x_star) ** 2))


def candidates():
    return search.grid(bilax.MRBO(S=5, eta=0.2), {"gamma": [0.001, 0.01, 0.1], "lam": [0.1, 0.5]})


def test_the_grid_has_every_combination():
    got = [(float(c.gamma), float(c.lam)) for c in candidates()]
    assert got == [(0.001, 0.1), (0.001, 0.5), (0.01, 0.1), (0.01, 0.5), (0.1, 0.1), (0.1, 0.5)]
    assert all(c.S == 5 for c in candidates())
    with pytest.raises(ValueError, match="no hyper-parameter of mrbo is called 'gama'"):
        search.grid(bilax.MRBO(), {"gama": [1.0]})


def test_the_search_takes_the_iterates_of_single_runs_and_compiles_once(compiled):
    x0, y0 = jnp.asarray(Q.x_star) + 1, jnp.asarray(Q.y_star(Q.x_star))
    problem = bilax.Problem(PROBLEM.outer_loss, PROBLEM.inner_loss, PROBLEM.outer_data, PROBLEM.inner_data, x0, y0)
    trials = search.search(problem, candidates(), distance, steps=40, lanes=4, seeds=[3])
    assert compiled.count("jit(_advance)") == 1  # 6 settings in groups of 4, then 2 of them
    assert [trial.steps for trial in trials] == [40, 40, 10, 10, 10, 10]
    for trial in trials:
        alone = bilax.solve(problem, trial.algorithm, steps=trial.steps, seed=3)
        np.testing.assert_allclose(trial.score, distance(alone.x, alone.y), rtol=1e-8)
    short = [bilax.solve(problem, c, steps=10, seed=3) for c in candidates()]
    best_two = sorted(distance(run.x, run.y) for run in short)[:2]
    assert max(best_two) <= min(trial.score for trial in trials[2:])


def test_a_setting_that_diverges_is_last():
    wild = search.grid(bilax.MRBO(S=5, eta=0.2, lam=0.1), {"gamma": [0.01, 1e30]})
    trials = search.search(PROBLEM, wild, distance, steps=60, rungs=1)
    assert trials[-1].score == np.inf
    assert [trial.status for trial in trials] == ["done", "diverged"]
    assert trials[0].algorithm.gamma == 0.01


def test_of_several_seeds_the_worst_counts():
    both, *alone = (
        search.search(PROBLEM, candidates(), distance, steps=20, rungs=1, seeds=s) for s in ([0, 1], [0], [1])
    )
    scores = [{str(trial.algorithm): trial.score for trial in trials} for trials in (both, *alone)]
    for setting, score in scores[0].items():
        np.testing.assert_allclose(score, max(one[setting] for one in scores[1:]), rtol=1e-12)


def test_settings_of_different_programs_are_refused():
    with pytest.raises(ValueError, match="may differ in real numbers only"):
        search.search(PROBLEM, [bilax.MRBO(S=5), bilax.MRBO(S=6)], distance, steps=2)
    with pytest.raises(ValueError, match="no settings to run"):
        search.search(PROBLEM, [], distance, steps=2)


def test_the_winner_as_toml_is_the_setting(tmp_path):
    path = tmp_path / "winner.toml"
    winner = bilax.VRBO(alpha=0.25, per_sample=True)
    path.write_text(search.toml(winner))
    assert settings.parse(str(path)) == winner


def test_settings_side_by_side_share_batches_and_branches(monkeypatch):
    """One k for all lanes: batches are drawn once, and what SRBA seldom does is not done at every step."""
    programs = []

    def read(fn, static, shared, tasks):
        programs.extend(fn.lower(*shared, *task).as_text() for task in tasks)
        return [fn(*shared, *task) for task in tasks]

    monkeypatch.setattr(search, "on_every_core", read)
    side_by_side = [bilax.SRBA(gamma=gamma, q=10) for gamma in (0.01, 0.02, 0.03)]
    search.search(PROBLEM, side_by_side, distance, steps=2, rungs=1, lanes=3)
    (program,) = programs
    assert "stablehlo.case" in program
    drawn = [line for line in program.splitlines() if "stablehlo.gather" in line]
    assert drawn
    assert not [line for line in drawn if "tensor<3x" in line.split("->")[1]]
