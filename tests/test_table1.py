"""The measured Table 1: its arithmetic on known numbers, and a tiny run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bilax
from bilax.oracle import KINDS
from bilax.paper import reaching, table1

DOCS = Path(__file__).parents[1] / "docs"


def test_every_method_is_measured_with_the_same_effort():
    measured = [method for method in bilax.ALGORITHMS.values() if method.about.scaling is not None]
    assert len(measured) >= 20
    for method in measured:
        tried = table1.settings_of(method.about.scaling)
        assert len(tried) == table1.SETTINGS, f"{method.about.name}: its grid must have {table1.SETTINGS} settings"
        for setting in tried:
            for tied in (method.about.scaling.fixed, *method.about.scaling.others):
                method(**tied(0.1), **setting)
    assert len(table1.TARGETS) >= 5
    assert max(table1.TARGETS) / min(table1.TARGETS) >= 100


def test_the_start_is_as_stated():
    q, x0, y0 = reaching.problem()
    np.testing.assert_allclose((q.gradient(x0) ** 2).sum(), 4)
    np.testing.assert_allclose(y0, q.y_star(x0))


def test_calls_and_slope_of_a_known_trace():
    """Two settings, three seeds, mean 1/sqrt(k) and 1/k: the second reaches eps first, after 1/eps iterations."""
    steps = 2000
    k = np.arange(1, steps + 1)
    mean = np.stack([np.tile(k**-0.5, (3, 1)), np.tile(1 / k, (3, 1))])
    extra = {kind: np.zeros((2, 3, steps)) for kind in KINDS}
    extra["HV"] += 3 * k
    trace = reaching.Trace(mean, extra, {kind: 2 * k if kind == "F" else 0 * k for kind in KINDS})
    evenly = np.full((1, 3), 1 / 3)
    for eps, needed in ((0.1 + 1e-9, 10), (0.01 + 1e-9, 100), (0.001 + 1e-9, 1000)):
        hits, calls = reaching.first_hits(trace, evenly, eps)
        assert calls[:, 0].argmin() == 1
        assert hits[1, 0] + 1 == needed
        assert reaching.calls_until(trace, 1, hits[1], evenly)["F"] == 2 * needed
        assert calls[1, 0] == (2 + 3) * needed
    assert np.isinf(reaching.first_hits(trace, evenly, 1e-5)[1]).all()
    diverged = trace._replace(mean=np.concatenate([mean[:, :2], np.full((2, 1, steps), reaching.HUGE)], axis=1))
    both = np.array([[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0]])
    assert np.isinf(reaching.first_hits(diverged, both, 0.1)[1][1]).tolist() == [True, False]
    x = np.log([10, 100, 1000])
    assert table1._slope(x, np.array([20.0, 200.0, 2000.0])) == pytest.approx(1)
    assert np.isnan(table1._slope(x, np.array([20.0, np.nan, 2000.0])))


def runs_of(rates, values, steps=2000, cost=1, kept=None):
    """Stand in for runs: |grad Phi|^2 = rate * value / k, one rate for each setting and one value for each seed."""
    runs = reaching.Runs(object, {}, [{"rate": rate} for rate in rates], steps)
    k = (runs.kept if kept is None else kept) + 1
    mean = np.array([[rate * value / k for value in values] for rate in rates])
    declared = {kind: cost * k * (kind == "F") for kind in KINDS}
    runs.trace = reaching.Trace(mean, dict.fromkeys(KINDS, 0 * mean), declared)
    return runs


def test_the_calls_have_an_interval_over_seeds():
    """With seeds alike there is no doubt; with seeds apart the interval holds the calls and is wide."""
    sure = runs_of([1.0], np.ones(8)).reach(0.01)
    np.testing.assert_allclose(sure.interval(), 100, rtol=0.01)
    assert sure.is_known()
    apart = runs_of([1.0], np.linspace(0.2, 1.8, 8)).reach(0.01)
    low, high = apart.interval()
    assert low < 90 < 110 < high
    assert not apart.is_known()
    sometimes = runs_of([1.0], np.array([1.0, reaching.HUGE])).reach(0.01)
    assert np.isnan(sometimes.interval()).all()
    assert not sometimes.is_known()
    never = runs_of([1.0], np.ones(8)).reach(1e-9)
    assert never.is_known()
    assert (never.setting, np.isnan(never.interval()).all()) == (None, True)


def test_constants_are_chosen_at_the_smallest_target():
    scaling = bilax.ALGORITHMS["vrbo"].about.scaling
    ways = [lambda eps, c=c: {"c": c} for c in (3, 1, 2)]
    asked = []

    def begin(fixed, eps):
        asked.append((fixed["c"], eps))
        return runs_of([1.0], np.ones(8), cost=fixed["c"])

    best = table1._best_constants(replace(scaling, fixed=ways[0], others=ways[1:]), begin, 0.02)
    assert best is ways[1]
    assert asked == [(3, 0.02), (1, 0.02), (2, 0.02)]
    assert table1._best_constants(replace(scaling, others=()), begin, 0.02) is scaling.fixed


def test_more_seeds_are_run_of_what_may_win(monkeypatch):
    """Three settings that need 10, 14 and 20 iterations for 0.1, and as many times more for 0.01."""
    runs = runs_of((1.0, 1.4, 2.0), np.ones(16))
    settings, steps = reaching.promising(runs, (0.1, 0.01))
    assert settings == [0, 1]
    assert steps == pytest.approx(200, rel=0.02)
    runs.narrow(settings, steps)
    assert runs.grid == [{"rate": 1.0}, {"rate": 1.4}]
    assert runs.trace.mean.shape == (2, 16, len(runs.kept))
    assert runs.reach(0.01).calls["F"][0] == pytest.approx(100, rel=0.02)
    assert reaching.promising(runs, (0.1, 1e-9)) == ([0, 1], runs.steps)


def test_seeds_are_added_until_the_calls_are_known(monkeypatch):
    """Values with a standard deviation of 0.4: 16 seeds know their mean within 0.2, 64 within 0.1, more or less."""
    values = 1 + 0.4 * np.random.default_rng(1).standard_normal(256)
    asked = []

    def trace(method, fixed, grid, seeds, steps, kept):
        asked.append((len(grid), seeds, steps))
        return runs_of([s["rate"] for s in grid], values[list(seeds)], kept=kept).trace

    monkeypatch.setattr(reaching, "trace", trace)
    runs = reaching.long_enough(reaching.Runs(object, {}, [{"rate": 1.0}, {"rate": 5.0}], 64_000), 0.01, 16)
    assert runs.steps == 1000  # a 64th is enough
    (found,) = reaching.certain(runs, [0.01], 256)
    assert found.seeds in (64, 256)
    assert found.is_known()
    assert asked[0] == (2, range(16), 1000)
    assert asked[1][:2] == (1, range(16, 64))
    assert asked[1][2] < 400


def test_a_rank_is_claimed_where_intervals_part():
    def row(name, *total):
        calls = {kind: [1.0, 1.0] for kind in KINDS}
        none = dict.fromkeys(KINDS, 0.0)
        return table1.Row(name, None, calls, [], none, dict.fromkeys(KINDS, (0.0, 0.0)), 8, list(total), {})

    rows = [row("a", (1, 3), (1, 2)), row("b", (2, 4), (3, 4)), row("c", (5, 6), (np.nan, np.nan))]
    assert table1.fewer(rows, (0.1, 0.01)) == [(0.1, ["a", "b"]), (0.01, ["a"])]


@pytest.mark.slow
def test_a_tiny_run():
    names = ["mrbo", "vrbo", "bsa", "stable", "aid-cg"]
    rows = table1.measure(names=names, targets=(3.9, 3.5, 3.0), seeds=2, scale=0.005)
    assert [row.method for row in rows] == names
    assert sum(np.isfinite(row.calls["F"]).any() for row in rows) >= 4
    text = table1.markdown(rows, (3.9, 3.5, 3.0))
    assert text.count("\n") == len(rows) + 1
    for row in rows:
        assert f"| {row.method} |" in text
        assert row.verdict() in (
            "as proven",
            "smaller than proven",
            "larger than proven",
            "nothing proven",
            "not reached",
        )


def test_verdicts():
    def row(slope, low, high, proven=1.5):
        calls = {kind: [1.0, 2.0] for kind in KINDS}
        slopes, intervals = dict.fromkeys(KINDS, slope), dict.fromkeys(KINDS, (low, high))
        return table1.Row("m", proven, calls, [], slopes, intervals, seeds=8, total=[], constants={})

    assert row(1.4, 1.2, 1.6).verdict() == "as proven"
    assert row(1.2, 1.1, 1.3).verdict() == "smaller than proven"
    assert row(1.55, 1.53, 1.57).verdict() == "as proven"  # close enough
    assert row(1.9, 1.8, 2.0).verdict() == "larger than proven"
    assert row(1.9, 1.8, 2.0, None).verdict() == "nothing proven"
    assert row(np.nan, np.nan, np.nan).verdict() == "not reached"


def test_the_page_shows_the_stored_rows():
    stored = json.loads((DOCS / "measured" / "table1.json").read_text())
    page = (DOCS / "table1.md").read_text()
    rows = [table1.read(row) for row in stored["rows"]]
    assert tuple(stored["targets"]) == table1.TARGETS
    assert [row.method for row in rows] == [n for n, m in bilax.ALGORITHMS.items() if m.about.scaling is not None]
    assert table1.markdown(rows) in page
    assert f"commit {stored['commit'][:7]}" in page
    for eps, names in table1.fewer(rows):
        assert f"- {eps:g}: {', '.join(names)}" in page
    for row in rows:  # one slope stands for all kinds of calls, but for the gradients of a first pass over all data
        if row.method == "saba":
            assert f"its products grow by {row.slope['HV']:.2f}" in page
            continue
        slopes = [slope for slope in row.slope.values() if np.isfinite(slope)]
        assert max(slopes) - min(slopes) < 0.05, row.method
