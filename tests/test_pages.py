"""From stored runs to what a page says."""

import pytest
from report_example import stored

from bilax.experiments.answers import answer, ranking
from bilax.paper import pages
from bilax.report import Page, Verdict
from bilax.report.chart import Chart
from bilax.report.page import assemble


def ends(*losses):
    """Rows of a run with these losses, one a second."""
    return [(k, float(k), loss) for k, loss in enumerate(losses)]


def test_a_run_that_used_its_budget_says_so(tmp_path):
    stored(tmp_path, "one", "mrbo", "MRBO", status="timeout", budget=1.0)
    page = pages.page(tmp_path)
    text = assemble(page)
    assert "timeout" not in text.partition("<script>")[0]
    assert '<td class="status">budget used</td>' in text
    assert ("runs", "1 budget used") in page.facts


def test_the_page_says_what_was_run_and_what_came_out(tmp_path):
    for seed, loss in enumerate((1.0, 3.0, 2.0)):
        stored(tmp_path, "one", "mrbo", "MRBO", seed, ends(9, loss), budget=1.0)
    stored(tmp_path, "one", "vrbo", "VRBO", 0, ends(9, 4), budget=1.0)
    stored(tmp_path, "one", "bsa", "BSA", 0, ends(9, 0.1), budget=1.0, status="diverged")
    page = pages.page(tmp_path)
    assert page.title == "3 methods on the task one"
    assert page.introduction == "5 runs, 3 seeds, 1 s each."
    assert page.answer == "MRBO ends with the lowest loss on the true training labels: 2, before VRBO with 4."
    assert ranking(page.figures[0]) == [("MRBO", 2), ("VRBO", 4)]  # without the one that diverged


def test_several_figures_say_who_ends_best_how_often(tmp_path):
    for task, (mrbo, vrbo) in {"one": (1, 2), "two": (1, 2), "three": (2, 1)}.items():
        stored(tmp_path, task, "mrbo", "MRBO", 0, ends(9, mrbo))
        stored(tmp_path, task, "vrbo", "VRBO", 0, ends(9, vrbo))
    page = pages.page(tmp_path)
    assert page.title == "2 methods on 3 problems"
    assert page.answer == "MRBO ends best in 2 of 3 figures."
    assert answer(page.figures[1:]) == "In each of 2 figures another method ends best"
    assert answer(page.figures[1:] * 2) == "VRBO and MRBO end best in 2 of 4 figures each"
    assert answer(()) == ""


def test_a_winner_is_named_only_where_every_seed_says_so(tmp_path):
    for seed, (mrbo, vrbo) in enumerate(((1.0, 1.1), (1.2, 1.3), (1.4, 1.5))):
        stored(tmp_path, "one", "mrbo", "MRBO", seed, ends(9, mrbo))
        stored(tmp_path, "one", "vrbo", "VRBO", seed, ends(9, vrbo))
    page = pages.page(tmp_path)
    assert page.answer == "MRBO and VRBO end alike, with the lowest loss on the true training labels: 1.2 and 1.3."
    assert answer(page.figures * 2) == "In none of 2 figures a method ends before all others with every seed"


def test_a_run_that_goes_on_does_not_cut_the_finished_ones_short(tmp_path):
    stored(tmp_path, "one", "mrbo", "MRBO", 0, ends(9, 5, 3, 1))
    stored(tmp_path, "one", "mrbo", "MRBO", 1, ends(9, 6), status="running")
    (figure,) = pages.page(tmp_path).figures
    (curve,) = Chart(figure).curves("k", "train_loss")
    assert (curve.x[-1], curve.seeds) == (3, 1)


SAID = {
    ("undecided", "undecided"): "none of 2 claims of the paper is decided, which takes 3 seeds or more",
    ("holds", "undecided"): "of 2 claims of the paper 1 holds, 1 undecided (tuned)",
    ("fails", "fails"): "of 2 claims of the paper 2 fail (tuned)",
}


@pytest.mark.parametrize("outcomes", SAID)
def test_claims_are_counted_and_folded_if_none_is_decided(outcomes):
    verdicts = tuple(Verdict(f"claim {i}", "Figure 1", "tuned", outcome, "") for i, outcome in enumerate(outcomes))
    assert pages.claims_in_words(verdicts) == SAID[outcomes]
    text = assemble(Page("p", "", (), verdicts))
    assert ("<details open>" in text) == (set(outcomes) != {"undecided"})
    assert pages.claims_in_words(()) == ""
