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
    same(curves.aggregate(runs), x=[0, 1, 2], middle=[6, 3, 1], low=[4, 2, 0], high=[8, 4, 3], seeds=[3, 3, 3])


def test_five_seeds_give_quartiles():
    same(curves.aggregate([([1], [y]) for y in (5, 1, 4, 2, 30)]), middle=[4], low=[2], high=[5], seeds=[5])
    same(curves.aggregate([([1], [y]) for y in (0, 1, 2, 3, 4, 5)]), middle=[2.5], low=[1.25], high=[3.75])


def test_runs_of_unequal_length_count_while_they_last():
    runs = [([0, 1, 2, 3], [4, 4, 4, 4]), ([0, 1, 2], [2, 2, 2]), ([1, 2], [0, 0])]
    same(
        curves.aggregate(runs),
        x=[0, 1, 2, 3],
        middle=[3, 2, 2, 4],
        low=[2, 0, 0, NAN],
        high=[4, 4, 4, NAN],
        seeds=[2, 3, 3, 1],
    )


def test_a_diverged_seed_stops_counting_where_it_ended():
    runs = [([0, 1, 2], [1, 1, 1]), ([0, 1, 2], [3, 3, 3]), ([0, 1, 2], [5, 1e30, INF])]
    same(curves.aggregate(runs), middle=[3, 3, 2], low=[1, 1, 1], high=[5, 1e30, 3], seeds=[3, 3, 2])


def test_of_several_measurements_at_one_x_the_last_counts():
    same(curves.aggregate([([0, 1, 1, 2], [9, 7, 5, 3])]), x=[0, 1, 2], middle=[9, 5, 3])


def test_what_was_not_measured_is_passed_over():
    runs = [([0, 1, 2, NAN], [NAN, 4, NAN, 5]), ([0, 1, 2], [1, NAN, 3])]
    same(curves.aggregate(runs), x=[0, 1, 2], middle=[1, 3, 3], low=[NAN, 2, NAN], high=[NAN, 4, NAN], seeds=[1, 2, 1])
    assert curves.aggregate([([0, 1], [NAN, NAN])]) is None
    assert curves.aggregate([]) is None


def test_one_seed_has_no_band():
    same(curves.aggregate([([0, 5], [2, 1])]), x=[0, 5], middle=[2, 1], low=[NAN, NAN], high=[NAN, NAN], seeds=[1, 1])


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
    low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
    same(curves.aggregate(runs), low=low, middle=middle, high=high)


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
