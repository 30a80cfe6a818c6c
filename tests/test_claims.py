"""The verdicts: made-up runs for which the answer is known."""

import numpy as np
import pandas as pd
import pytest

from bilax.paper.claims import CLAIMS, Curves, Effort, decide, together
from bilax.paper.figures import EXPERIMENTS


def runs(speeds, *, y="train_loss", start=20.0, seeds=5, samples=1000, seconds=10.0, wobble=None, up=False, end=None):
    """Exponential curves: method -> rate per second; the larger, the faster."""
    rows = []
    for method, rate in speeds.items():
        for seed in range(seeds):
            t = np.linspace(0, seconds, 101)
            value = start * np.exp(-rate * t)
            if up:
                value = (end or {}).get(method, 0.9) * (1 - np.exp(-rate * t))
            value = value + (wobble or {}).get(method, 0) * (np.arange(101) % 2)
            rows += [
                {"method": method, "seed": seed, "k": k, "seconds": t[k], "samples": samples * t[k], y: value[k],
                 "status": "timeout"} for k in range(101)
            ]  # fmt: skip
    return pd.DataFrame(rows)


ALL = dict.fromkeys(EXPERIMENTS["fig1a"].methods, 0.3)


def verdict(text, table, y="train_loss"):
    claim = next(claim for claim in CLAIMS if text in claim.text)
    return claim.test(Curves(table, y))


def test_every_claim_names_experiments_that_have_its_methods():
    for claim in CLAIMS:
        for name in claim.where:
            experiment = EXPERIMENTS[name]
            table = runs(dict.fromkeys(experiment.methods, 1.0), y=experiment.y, up=experiment.y == "test_accuracy")
            assert claim.test(Curves(table, experiment.y)).outcome in ("holds", "fails", "undecided"), claim.text


@pytest.mark.parametrize(
    ("speeds", "outcome"),
    [
        ({"VRBO": 1.0, "stocBiO": 1.0}, "holds"),
        ({"VRBO": 0.5, "stocBiO": 1.0}, "fails"),  # faster, but not twice as fast
        ({"VRBO": 0.1, "stocBiO": 0.1}, "fails"),
    ],
)
def test_much_faster(speeds, outcome):
    judged = verdict("much faster", runs(ALL | speeds))
    assert judged.outcome == outcome
    assert "MRBO 7.7" in judged.numbers  # log(10) / 0.3 s, at the next measurement
    if speeds["VRBO"] == 0.1:
        assert "VRBO more than 10" in judged.numbers


def test_too_few_seeds_or_no_agreement_leave_it_undecided():
    speeds = ALL | {"VRBO": 1.0, "stocBiO": 1.0}
    assert verdict("much faster", runs(speeds, seeds=2)).outcome == "undecided"
    mixed = runs(speeds)
    slow = runs(ALL | {"VRBO": 0.1})
    three = mixed[~((mixed.method == "VRBO") & (mixed.seed < 2))]
    assert (
        verdict("much faster", pd.concat([three, slow[(slow.method == "VRBO") & (slow.seed < 2)]])).outcome
        == "undecided"
    )


def test_lower_end_and_steadier():
    table = runs(ALL | {"VRBO": 1.0, "stocBiO": 0.5}, wobble={"stocBiO": 0.3})
    assert verdict("ends with a lower loss", table).outcome == "holds"
    assert verdict("more steadily", table).outcome == "holds"
    table = runs(ALL | {"VRBO": 0.5, "stocBiO": 1.0}, wobble={"VRBO": 0.3})
    assert verdict("ends with a lower loss", table).outcome == "fails"
    assert verdict("more steadily", table).outcome == "fails"


def test_a_diverged_run_has_no_end():
    table = runs(ALL | {"VRBO": 1.0})
    table.loc[table.method == "VRBO", "status"] = "diverged"
    judged = verdict("ends with a lower loss", table)
    assert judged.outcome == "fails"
    assert "VRBO diverged" in judged.numbers
    assert verdict("more steadily", table).outcome == "fails"


def test_seeds_that_diverged_or_are_missing_count():
    table = runs(ALL | {"VRBO": 1.0})
    table.loc[(table.method == "VRBO") & (table.seed < 2), "status"] = "diverged"
    assert verdict("ends with a lower loss", table).outcome == "undecided"  # three of five are not enough
    missing = runs(ALL | {"VRBO": 1.0})
    missing = missing[~((missing.method == "VRBO") & (missing.seed < 2))]
    assert verdict("ends with a lower loss", missing).outcome == "undecided"


def test_a_tie_is_no_failure_and_a_method_without_runs_no_crash():
    assert verdict("more steadily", runs(ALL)).outcome == "undecided"
    without = runs({name: rate for name, rate in ALL.items() if name != "STABLE"} | {"BSA": 1.0})
    judged = verdict("BSA converges faster", without)
    assert judged.outcome == "undecided"
    assert "STABLE no runs" in judged.numbers
    ends = dict.fromkeys(EXPERIMENTS["fig6a"].methods, 1.0)
    table = runs(ends, y="test_accuracy", up=True).assign(status="diverged")
    for claim in CLAIMS:
        if "fig6a" in claim.where:
            assert claim.test(Curves(table, "test_accuracy")).outcome != "holds", claim.text


def test_best_in_the_middle():
    ms = ("VRBO-1", "VRBO-10", "VRBO-20", "VRBO-50", "VRBO-100")
    assert (
        verdict("from m = 1 to m = 20", runs(dict(zip(ms, (0.1, 0.2, 0.3, 0.2, 0.1), strict=True)))).outcome == "holds"
    )
    assert (
        verdict("from m = 1 to m = 20", runs(dict(zip(ms, (0.1, 0.2, 0.3, 0.4, 0.1), strict=True)))).outcome == "fails"
    )


def test_samples_of_a_run_that_stopped_early_say_nothing():
    single = runs({"BSA": 1.0, "MSTSA": 1.0, "SUSTAIN": 1.0}, samples=1)
    batch = runs({"MRBO": 1.0, "VRBO": 1.0}, samples=1000)
    short = runs({"STABLE": 1e-6}, samples=0.01)
    judged = verdict("single-sample methods need fewer", pd.concat([single, batch, short]))
    assert judged.outcome == "undecided"
    assert "STABLE more than 0.1" in judged.numbers
    long = runs({"STABLE": 1e-6}, samples=1e6)
    assert verdict("single-sample methods need fewer", pd.concat([single, batch, long])).outcome == "fails"
    good = runs({"STABLE": 1.0}, samples=1)
    assert verdict("single-sample methods need fewer", pd.concat([single, batch, good])).outcome == "holds"


def test_accuracies():
    ends = {"stocBiO": 0.7, "MRBO": 0.8, "VRBO": 0.8, "MRBO(D)": 0.85, "SUSTAIN": 0.4, "MSTSA": 0.5}
    table = runs(dict.fromkeys(ends, 1.0) | {"stocBiO": 5.0}, y="test_accuracy", up=True, end=ends)
    for text in (
        "fastest at first",
        "end more accurate than stocBiO",
        "MRBO(D) is the most accurate",
        "do not converge",
    ):
        assert verdict(text, table, "test_accuracy").outcome == "holds", text
    assert verdict("1000: stocBiO is the most accurate", table, "test_accuracy").outcome == "fails"


def test_effort_and_rules():
    assert Effort(1, True).less_than(Effort(2, True)) is True
    assert Effort(1, True).less_than(Effort(2, True), factor=3) is False
    assert Effort(1, True).less_than(Effort(5, False)) is True
    assert Effort(5, False).less_than(Effort(1, True)) is False
    assert Effort(1, False).less_than(Effort(5, True)) is None
    assert Effort(5, True).less_than(Effort(1, False)) is None
    assert together(["holds", "undecided", "fails"]) == "fails"
    assert together([]) == "undecided"
    assert decide([True, True, None, True, True]) == "holds"
