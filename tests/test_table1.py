"""The measured Table 1: its arithmetic on known numbers, and a tiny run."""

import numpy as np
import pytest

import bilax
from bilax.oracle import KINDS
from bilax.paper import table1


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
    q, x0, y0 = table1.problem()
    np.testing.assert_allclose((q.gradient(x0) ** 2).sum(), 4)
    np.testing.assert_allclose(y0, q.y_star(x0))


def test_calls_and_slope_of_a_known_trace():
    """Two settings, three seeds, mean 1/sqrt(k) and 1/k: the second reaches eps first, after 1/eps iterations."""
    steps = 2000
    k = np.arange(1, steps + 1)
    mean = np.stack([np.tile(k**-0.5, (3, 1)), np.tile(1 / k, (3, 1))])
    extra = {kind: np.zeros((2, 3, steps)) for kind in KINDS}
    extra["HV"] += 3 * k
    trace = table1._Trace(mean, extra, {kind: 2 * k if kind == "F" else 0 * k for kind in KINDS})
    evenly = np.full((1, 3), 1 / 3)
    winners = [table1._fewest(trace, evenly, eps)[0] for eps in (0.1 + 1e-9, 0.01 + 1e-9, 0.001 + 1e-9)]
    assert [w.setting for w in winners] == [1, 1, 1]
    assert [w.calls["F"] for w in winners] == [20, 200, 2000]
    assert [w.calls["HV"] for w in winners] == [30, 300, 3000]
    assert table1._fewest(trace, evenly, 1e-5) == [None]
    diverged = trace._replace(mean=np.concatenate([mean[:, :2], np.full((2, 1, steps), table1.HUGE)], axis=1))
    both = np.array([[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0]])
    assert [winner is None for winner in table1._fewest(diverged, both, 0.1)] == [True, False]
    x = np.log([10, 100, 1000])
    assert table1._slope(x, np.array([20.0, 200.0, 2000.0])) == pytest.approx(1)
    assert np.isnan(table1._slope(x, np.array([20.0, np.nan, 2000.0])))


def traces_of(values, cost=1):
    """Stand in for runs: one setting, `values` of |grad Phi|^2 by seed, which reach a target at once or never."""

    class Traces:
        def __init__(self):
            self.asked = []

        def of(self, fixed, seeds):
            self.asked.append((fixed["c"], seeds))
            k = np.arange(1, 1001)
            mean = np.array([[value / k for value in values[:seeds]]])
            zeros = {kind: np.zeros((1, seeds, len(k))) for kind in KINDS}
            return table1._Trace(mean, zeros, {kind: fixed["c"] * k if kind == "F" else 0 * k for kind in KINDS})

    return Traces()


def test_the_calls_have_an_interval_over_seeds():
    """With seeds alike there is no doubt; with seeds apart the interval holds the calls and is wide."""
    sure = table1._at_targets(traces_of(np.ones(8)), lambda eps: {"c": 1}, (0.1, 0.01), 8)
    np.testing.assert_allclose(sure.intervals(), [[10, 10], [100, 100]], rtol=0.01)
    assert sure.half_width() < 0.01
    apart = table1._at_targets(traces_of(np.linspace(0.5, 1.5, 8)), lambda eps: {"c": 1}, (0.1, 0.01), 8)
    (low, high) = apart.intervals()[1]
    assert low < 90 < 110 < high
    assert 0.1 < apart.half_width() < 0.5


def test_constants_are_chosen_at_the_smallest_target():
    scaling = bilax.ALGORITHMS["vrbo"].about.scaling
    from dataclasses import replace

    ways = [lambda eps, c=c: {"c": c} for c in (3, 1, 2)]
    traces = traces_of(np.ones(8))
    best = table1._best_constants(replace(scaling, fixed=ways[0], others=ways[1:]), traces, 0.02, 8)
    assert best is ways[1]
    assert {c for c, _ in traces.asked} == {1, 2, 3}
    assert table1._best_constants(replace(scaling, others=()), traces, 0.02, 8) is scaling.fixed


def test_more_seeds_are_run_of_what_may_win():
    """Three settings that need 10, 14 and 20 iterations for 0.1, and as many times more for 0.01."""
    traces = table1._Traces(object, [{"c": c} for c in (1.0, 1.4, 2.0)], 2000)
    mean = np.stack([np.tile(c / (traces.kept + 1), (16, 1)) for c in (1.0, 1.4, 2.0)])
    calls = {kind: (traces.kept + 1) * (kind == "F") for kind in KINDS}
    traces._known = {repr({}): table1._Trace(mean, dict.fromkeys(KINDS, 0 * mean), calls)}
    settings, steps = table1._promising(traces, lambda eps: {}, (0.1, 0.01), 16)
    assert settings == [0, 1]
    assert steps == pytest.approx(200, rel=0.02)
    traces.narrow(settings, steps)
    assert traces.grid == [{"c": 1.0}, {"c": 1.4}]
    cut = traces.of({}, 16)
    assert cut.mean.shape == (2, 16, len(traces.kept))
    assert table1._fewest(cut, table1._shares(16), 0.01)[0].calls["F"] == pytest.approx(100, rel=0.02)
    assert table1._promising(traces, lambda eps: {}, (0.1, 1e-9), 16) == ([0, 1], traces.steps)


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
