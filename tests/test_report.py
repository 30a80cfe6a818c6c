"""Reports: files that hold together and are the same every time."""

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from report_example import EVIL, INF, NAN, example, methods, table, with_zeros

from bilax.report import Figure, Gallery, Page, Specimen, curves, html, write
from bilax.report.chart import Chart
from bilax.report.page import assemble
from bilax.report.pictures import _fill


def payload(text):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S)[1])


def test_an_empty_page(tmp_path):
    assert write(Page("Nothing", "", ()), tmp_path).read_text("utf-8").count("<section") == 0


@pytest.mark.parametrize(
    "data", [pd.DataFrame(), table(["other"]), table(["A"]).assign(train_loss=NAN, norm_v=NAN, test_accuracy=NAN)]
)
def test_a_figure_without_measurements(tmp_path, data):
    text = write(
        Page("p", "", (Figure("f", "t", "", data, methods(["A"])), Figure("g", "t", "", data, ()))), tmp_path
    ).read_text("utf-8")
    assert text.count("There are no measurements to draw.") == 2
    assert (tmp_path / "figures" / "f.png").stat().st_size > 1000


def test_a_method_without_runs_and_one_that_diverged(tmp_path):
    lost = table(["A"], seeds=3)
    lost["status"] = np.where(lost["seed"] == 1, "diverged", "done")
    text = write(Page("p", "", (Figure("f", "t", "", lost, methods(["A", "B"])),)), tmp_path).read_text("utf-8")
    assert "A (1 of 3 seeds diverged)" in text
    assert "B (no runs)" in text
    assert "done: 2, diverged: 1" in text
    assert payload(text)["curves"]["k"]["train_loss"][1] is None


def test_numbers_in_the_page_are_json_without_nan():
    shown = payload(assemble(Page("p", "", (example(),))))
    *lists, seeds = shown["curves"]["seconds"]["train_loss"][0]
    x, middle, low, high = (shown["pool"][i] for i in lists)
    assert len(x) == len(middle) == len(low) == len(high)
    assert None not in low
    assert x[-1] == 11  # the fastest seed's end, where the number of seeds changes
    assert seeds == 5
    alone = payload(assemble(Page("p", "", (Figure("f", "t", "", table(["A"], seeds=1), methods(["A"])),))))
    assert set(alone["pool"][alone["curves"]["k"]["train_loss"][0][2]]) == {None}  # one seed has no band
    assert shown["methods"] == ["MRBO", "VRBO", EVIL]
    assert list(shown["curves"]) == ["seconds", "k", "samples", "F"]  # HINV never moves
    expected = curves.along(Chart(example()).runs[0], "seconds", "train_loss")
    np.testing.assert_allclose(middle, expected.middle, rtol=1e-4)
    assert html.data({"a": [NAN, INF, 1.5]}) == '<script type="application/json">{"a":[null,null,1.5]}</script>'


def test_nothing_breaks_out_of_a_script_element():
    text = html.data([EVIL])
    inside = text.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside) == [EVIL]


def test_counters_that_move_together_share_their_curves():
    shown = Chart(example()).payload()["curves"]
    assert shown["k"]["train_loss"][0][1:] == shown["samples"]["train_loss"][0][1:] == shown["F"]["train_loss"][0][1:]


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([1, 1], "one seed per method"), ([3, 4], "over 3 to 4 seeds, as far as all seeds of a method go. Bands: from the lowest"), ([5], "over 5 seeds, as far as all seeds of a method go. Bands: from the first"), ([2, 9], "fewer than 5 seeds"), ([1, 2], "for methods with two seeds or more")],
)  # fmt: skip
def test_the_caption_says_what_the_bands_are(seeds, said):
    names = [f"m{i}" for i in range(len(seeds))]
    data = pd.concat([table([name], seeds=count, points=2) for name, count in zip(names, seeds, strict=True)])
    assert said in Chart(Figure("f", "t", "", data, methods(names))).spread()


def test_pictures_are_written_and_the_same_every_time(tmp_path):
    page = Page("p", "", (example("a", log_x=True, log_y=True), example("b")))
    for folder in ("one", "two"):
        write(page, tmp_path / folder)
    for name in ("a", "b"):
        for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
            one, two = ((tmp_path / folder / "figures" / f"{name}.{kind}").read_bytes() for folder in ("one", "two"))
            assert one.startswith(magic)
            assert len(one) > 5000
            assert one == two


@pytest.mark.parametrize("log_y", [True, False])
def test_a_picture_says_what_a_logarithm_leaves_out(log_y):
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(layout="constrained")
    axis = sheet.add_subplot()
    _fill(sheet, axis, Chart(with_zeros(example(names=("MRBO", "VRBO"), log_y=log_y), "VRBO")))
    said = [text.get_text() for text in axis.texts]
    assert said == ["0 and less have no logarithm and are not drawn: VRBO"] * log_y


@pytest.mark.parametrize(
    "names", [("MRBO", "VRBO"), [f"mrbo[gamma={10**i},lam=1,c1=0.5,c2=0.5,m=1000]" for i in range(9)]]
)
def test_the_legend_of_a_picture_is_inside_it(names):
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(figsize=(7.5, 5), layout="constrained")
    _fill(sheet, sheet.add_subplot(), Chart(example(names=names)))
    sheet.draw_without_rendering()
    legend = sheet.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= sheet.bbox.width


def test_the_first_tick_of_a_logarithmic_picture_is_zero():
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet()
    axis = sheet.add_subplot()
    _fill(sheet, axis, Chart(example(log_x=True)))
    sheet.draw_without_rendering()
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0", "1", "2", "5", "10"]
    left, _ = axis.get_xlim()
    assert left < min(line.get_xdata()[0] for line in axis.get_lines()) == axis.get_xticks()[0]


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a figure is named '../x'.*letters, digits"):
        write(Page("p", "", (example("../x"),)), tmp_path)
    with pytest.raises(ValueError, match="two figures are named 'a'"):
        write(Page("p", "", (example("a"), example("A"))), tmp_path)
    with pytest.raises(ValueError, match="two methods of a are named 'M'"):
        write(Page("p", "", (example("a", ("M", "M")),)), tmp_path)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        assemble(Page("p", "", (), (), (Gallery("g", "", (Specimen(np.zeros(3), "1", "1", 0.5),)),)))
    assert not list(tmp_path.iterdir())


def test_importing_the_package_is_light():
    code = (
        "import sys, bilax.report\n"
        "heavy = {'matplotlib', 'plotly', 'pandas', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.modules['plotly'] = sys.modules['plotly.offline'] = None\n"
        "from bilax.report.page import assemble, Page, Figure\n"
        "try: assemble(Page('p', '', (Figure('f', 't', '', None, ()),)))\n"
        "except ImportError as error: assert str(error) == \"a report needs plotly: pip install 'bilax[report]'\", error\n"
        "else: raise AssertionError"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
