"""The numbers of the curves in a report."""

import numpy as np
from report_example import INF, NAN

from bilax.report import curves


def lists(curve):
    return [part.tolist() for part in curve]


def same(curve, **expected):
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(curve, name), values, err_msg=name)


def test_few_seeds_give_the_median_and_the_extremes():
    runs = [([0, 1, 2], [4, 2, 1]), ([0, 1, 2], [6, 3, 3]), ([0, 2], [8, 0])]
    same(curves.aggregate(runs), x=[0, 1, 2], middle=[6, 3, 1], low=[4, 2, 0], high=[8, 4, 3], seeds=3)


def test_five_seeds_give_quartiles():
    same(curves.aggregate([([1], [y]) for y in (5, 1, 4, 2, 30)]), middle=[4], low=[2], high=[5], seeds=5)
    same(curves.aggregate([([1], [y]) for y in (0, 1, 2, 3, 4, 5)]), middle=[2.5], low=[1.25], high=[3.75])


def test_a_curve_ends_where_the_number_of_seeds_changes():
    runs = [([0, 1, 2, 3], [4, 4, 4, 4]), ([0, 1, 2], [2, 2, 2]), ([1, 2, 3], [0, 0, 0])]
    same(curves.aggregate(runs), x=[1, 2], middle=[2, 2], low=[0, 0], high=[4, 4], seeds=3)
    assert curves.aggregate([([0, 1], [1, 1]), ([2, 3], [1, 1])]) is None  # nothing in common


def test_a_curve_ends_where_the_first_seed_diverges():
    runs = [([0, 1, 2], [1, 1, 1]), ([0, 1, 2], [3, 3, 3]), ([0, 1, 2], [5, 1e30, INF])]
    same(curves.aggregate(runs), x=[0, 1], middle=[3, 3], low=[1, 1], high=[5, 1e30], seeds=3)


def test_a_long_curve_ends_exactly_where_the_shortest_run_does():
    runs = [(np.arange(1000) / 7, np.ones(1000)), (np.arange(901) / 7, np.ones(901))]
    assert curves.aggregate(runs).x[-1] == 900 / 7


def test_a_run_that_measured_once_does_not_cut_the_others_short():
    same(curves.aggregate([([0, 1, 2], [1, 1, 1]), ([0], [3])]), x=[0, 1, 2], middle=[1, 1, 1], seeds=1)
    same(curves.aggregate([([2], [1]), ([2], [3])]), x=[2], middle=[2], seeds=2)


def test_of_several_measurements_at_one_x_the_last_counts():
    same(curves.aggregate([([0, 1, 1, 2], [9, 7, 5, 3])]), x=[0, 1, 2], middle=[9, 5, 3])


def test_what_was_not_measured_is_passed_over():
    runs = [([0, 1, 2, 3, NAN], [NAN, 4, NAN, 6, 5]), ([0, 1, 2, 3], [1, NAN, 3, 4])]
    same(curves.aggregate(runs), x=[1, 2, 3], middle=[3, 4, 5], low=[2, 3, 4], high=[4, 5, 6], seeds=2)
    assert curves.aggregate([([0, 1], [NAN, NAN])]) is None
    assert curves.aggregate([]) is None


def test_one_seed_has_no_band():
    same(curves.aggregate([([0, 5], [2, 1])]), x=[0, 5], middle=[2, 1], low=[NAN, NAN], high=[NAN, NAN], seeds=1)


def test_long_runs_are_thinned_and_keep_their_ends():
    x = np.arange(1000)
    curve = curves.aggregate([(x, 2 * x), (x, 2 * x + 2)], points=10)
    assert len(curve.x) == 10
    same(curve, middle=2 * curve.x + 1)
    assert (curve.x[0], curve.x[-1]) == (0, 999)


def test_quantiles_are_those_of_numpy():
    rng = np.random.default_rng(0)
    runs = [(np.arange(30), np.where(rng.random(30) < 0.1, NAN, rng.normal(size=30))) for _ in range(7)]
    values = [np.interp(np.arange(30), x[~np.isnan(y)], y[~np.isnan(y)], left=NAN, right=NAN) for x, y in runs]
    shared = np.isfinite(values).all(axis=0)
    assert 20 < shared.sum() < 30
    low, middle, high = np.quantile(np.array(values)[:, shared], [0.25, 0.5, 0.75], axis=0)
    same(curves.aggregate(runs), x=np.arange(30)[shared], low=low, middle=middle, high=high)


def test_the_last_value_is_the_median_of_the_last_measured():
    runs = [{"loss": np.array([3, 1, NAN])}, {"loss": np.array([2.0])}, {"loss": np.array([NAN])}, {}]
    assert curves.last(runs, "loss") == 1.5
    assert np.isnan(curves.last(runs[2:], "loss"))
    assert curves.last([{"loss": np.array([1, INF])}], "loss") == INF


def test_the_view_leaves_out_what_diverged():
    usual = curves.aggregate([([0, 1], [20, 1])])
    lost = curves.aggregate([([0, 1], [20, 1e9])])
    assert curves.view([usual, usual, None]) is None
    assert curves.view([]) is None
    low, high = curves.view([usual, usual, lost])
    assert high == 25
    assert -1 < low < 1


def test_the_start_has_a_place_on_a_logarithmic_axis():
    begins = curves.aggregate([([0, 0.5, 10], [3, 2, 1])])
    later = curves.aggregate([([0.1, 1000], [3, 1])])
    place, first = curves.start([begins, None, later])
    assert first == 0.1
    assert 0 < place <= first / 2
    assert curves.start([later, None]) is None
    assert curves.start([]) is None
