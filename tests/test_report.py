"""Reports: the numbers of the curves, files that hold together, and the page in a real browser."""

import json
import re
import subprocess
import sys

import chromium
import numpy as np
import pandas as pd
import pytest

from bilax.report import Figure, Gallery, Method, Page, Specimen, Verdict, curves, html, write
from bilax.report.chart import Chart
from bilax.report.page import assemble

EVIL = "<script>window.hacked=1</script><b>bold</b> $x$ %{x} &amp; \u2028"
NAN, INF = np.nan, np.inf


# The numbers


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


# The files


def table(methods, seeds=5, points=12, **extra):
    rows = []
    for rate, method in enumerate(methods, 1):
        for seed in range(seeds):
            for k in range(points):
                loss = 20 * np.exp(-rate * k / 10) + 0.5 + 0.01 * seed
                counts = {
                    "k": k * rate,
                    "seconds": k * (1 + seed / 10),
                    "samples": 100 * k * rate,
                    "F": 10 * k,
                    "HINV": 0,
                }
                measured = {"train_loss": loss, "norm_v": NAN if k == 0 else loss / 3, "test_accuracy": 1 - loss / 25}
                rows.append({"method": method, "seed": seed, **counts, **measured, **extra})
    return pd.DataFrame(rows)


def methods(names):
    return tuple(Method(name, f"{name}[alpha=0.1]", f"bilax run '{name}'", f"note of {name}") for name in names)


def example(name="fig1", names=("MRBO", "VRBO", EVIL), **options):
    return Figure(name, f"Figure {name}: {EVIL}", "A caption.", table(names), methods(names), **options)


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
    x, middle, low, high, seeds = (shown["pool"][i] for i in shown["curves"]["seconds"]["train_loss"][0])
    assert len(x) == len(middle) == len(high) == len(seeds)
    assert low[0] is not None
    assert low[-1] is None  # the slowest seed alone
    assert seeds[-1] == 1
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
    [([1, 1], "one seed per method"), ([3, 4], "over 3 to 4 seeds. Bands: from the lowest"), ([5], "over 5 seeds. Bands: from the first"), ([2, 9], "fewer than 5 seeds")],
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


# The page in a browser


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    verdicts = (
        Verdict(EVIL, "Figure 1", "paper", "holds", EVIL),
        Verdict("b", "Figure 1", "tuned", "fails", "1 > 2"),
        Verdict("c", EVIL, EVIL, EVIL, ""),
    )
    specimens = tuple(Specimen(np.eye(8) * i, str(i % 3), str(i % 2), i / 9 if i else NAN) for i in range(10))
    page = Page(
        EVIL,
        f"{EVIL}\n\nMore.",
        (example("fig1"), example("fig2", x="k", y="norm_v", log_y=True), example("fig3"), example("fig4")),
        verdicts,
        (Gallery(EVIL, EVIL, specimens),),
        (("version", "1"), ("a long one", "x" * 500), (EVIL, EVIL)),
    )
    return write(page, tmp_path_factory.mktemp("report"))


def test_the_page_refers_to_nothing_outside(written):
    text = written.read_text("utf-8")
    own = re.sub(
        r"<script>.*?</script>", "", text, flags=re.S
    )  # plotly names addresses of maps, which it does not fetch
    assert len(own) < len(text) - 1_000_000
    assert {address[:1] for address in re.findall(r'\shref="([^"]*)', own)} == {"#"}
    assert {address[:15] for address in re.findall(r'\ssrc="([^"]*)', own)} == {"data:image/png;"}
    for sign in ("http:", "https:", "@import", "url(", "<link", "<iframe"):
        assert sign not in own


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as browser:
        yield browser


def visit(browser, written, **options):
    """Open the page in a window of its own; return it with a list of all that goes wrong in it or is asked for."""
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}).new_page()
    trouble = []
    page.set_default_timeout(10_000)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or trouble.append(request.url)
    )
    page.goto(written.as_uri())
    page.locator("#fig1 .chart").scroll_into_view_if_needed()
    page.wait_for_selector("#fig1 .main-svg")
    return page, trouble


@pytest.fixture(scope="module")
def window(browser, written):
    return visit(browser, written)


@pytest.fixture
def page(window):
    """A window that the tests share, because it takes a second to open, with its controls as they were at first."""
    page, trouble = window
    page.evaluate("""() => {
        for (const box of document.querySelectorAll("input")) box.checked = box.defaultChecked;
        for (const option of document.querySelectorAll("option")) if (option.defaultSelected) option.selected = true;
        for (const controls of document.querySelectorAll(".controls")) controls.dispatchEvent(new Event("change"));
        document.querySelector("#page-variant").selectedIndex = 0;
        document.querySelector("#page-variant").dispatchEvent(new Event("change"));
    }""")
    yield page
    assert not trouble


@pytest.fixture
def opened(browser, written):
    """Open windows of other kinds."""
    windows = []

    def open_(**options):
        windows.append(visit(browser, written, **options))
        return windows[-1][0]

    yield open_
    for page, trouble in windows:
        page.context.close()
        assert not trouble


def shown(page, what, figure="fig1"):
    return page.evaluate(f"(() => {{ const chart = document.querySelector('#{figure} .chart'); return {what}; }})()")


LINES = "chart.data.filter(t => t.mode !== 'lines' && t.visible).map(t => t.x)"


def test_the_axes_follow_the_controls(page):
    assert page.text_content("#fig1 .xtitle") == "time in seconds"
    before = shown(page, LINES)
    page.select_option("#fig1 [name=x]", label="outer iterations")
    assert page.text_content("#fig1 .xtitle") == "outer iterations"
    assert shown(page, LINES) != before
    assert shown(page, LINES)[1] == [2 * k for k in range(12)]
    page.select_option("#fig1 [name=y]", label="accuracy on the test samples")
    assert page.text_content("#fig1 .ytitle") == "accuracy on the test samples"
    assert shown(page, "chart._fullLayout.xaxis.type") == "linear"
    page.check("#fig1 [name=log_x]")
    page.check("#fig1 [name=log_y]")
    assert shown(page, "[chart._fullLayout.xaxis.type, chart._fullLayout.yaxis.type]") == ["log", "log"]
    assert min(shown(page, LINES)[0]) == 1  # zero has no logarithm
    page.uncheck("#fig1 [name=log_x]")
    assert shown(page, "chart._fullLayout.xaxis.type") == "linear"


def test_curves_can_be_hidden_and_shown(page):
    count = lambda: shown(page, "chart.querySelectorAll('.scatterlayer .trace .js-line').length")
    all_ = count()
    page.get_by_label("MRBO").first.uncheck()
    assert shown(page, f"({LINES}).length") == 2
    assert count() < all_
    page.click("#fig1 [data-all='']")
    assert count() == 0
    assert page.text_content("#fig1 .remark") == "No curve is chosen."
    page.click("#fig1 [data-all='1']")
    assert count() == all_


def test_no_button_sends_data_away(page):
    labels = shown(page, "[...chart.querySelectorAll('.modebar button')].map(b => b.getAttribute('aria-label'))")
    assert labels == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]
    assert shown(page, "chart._context.plotlyServerURL") == ""


def test_everything_works_with_the_keyboard_alone(page):
    assert page.evaluate("document.querySelector('a, button, input, select, summary, [tabindex]').className") == "skip"
    page.focus(".skip")
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(e => e.closest('#fig1') ? e.name || e.dataset.all || e.textContent : e.id)(document.activeElement)"
            )
        )
        name, before = seen[-1], shown(page, LINES)
        if name == "page-variant":
            page.keyboard.press("ArrowDown")
            assert page.text_content("#page-tally") == "holds: 1"
        elif name in ("x", "y"):
            page.keyboard.press("ArrowDown")
            assert page.evaluate("document.activeElement.selectedIndex") == 1
        elif name == "log_x":
            page.keyboard.press("Space")
            assert shown(page, "chart._fullLayout.xaxis.type") == "log"
        elif name == "method":
            page.keyboard.press("Space")
            assert shown(page, LINES) != before
        elif name == "none":
            page.keyboard.press("Enter")
            assert shown(page, LINES) == []
        elif name.startswith("Settings"):
            page.keyboard.press("Space")
            assert page.evaluate("document.activeElement.parentElement.open")
            break
    assert {"page-variant", "x", "y", "log_x", "log_y", "1", "none", "method"} <= set(seen)
    assert seen.count("method") == 3
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_names_are_text_everywhere(page):
    visible = re.sub(r"\s+", " ", EVIL).strip()
    assert page.evaluate("window.hacked") is None
    assert page.locator("b").count() == 0
    same_text = lambda selector: re.sub(r"\s+", " ", page.locator(selector).last.text_content()).strip()
    assert same_text("#fig1 .method span") == visible
    assert same_text("#fig1 tbody th") == visible
    assert re.sub(r"\s+", " ", page.locator("#page-verdict-rows th").first.text_content()).strip() == visible
    assert re.sub(r"\s+", " ", page.title()).strip() == visible
    page.evaluate("Plotly.Fx.hover(document.querySelector('#fig1 .chart'), [{curveNumber: 5, pointNumber: 3}])")
    hover = page.wait_for_selector("#fig1 .hoverlayer .hovertext").text_content()
    assert "<script>window.hacked=1</script><b>bold</b> $x$ %{x} &amp;" in hover
    assert "median of 5 seeds" in hover
    assert page.evaluate("window.hacked") is None
    assert page.locator("b").count() == 0


def test_verdicts_are_filtered_by_variant(page):
    assert page.locator("#page-verdict-rows tr:visible").count() == 3
    page.select_option("#page-variant", label="tuned")
    assert page.locator("#page-verdict-rows tr:visible").count() == 1
    assert page.text_content("#page-tally") == "fails: 1"
    assert page.locator("#page-verdict-rows tr:visible .badge").text_content() == "✗ fails"


def test_a_phone_never_scrolls_sideways(opened):
    page = opened(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme="dark")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#fig1 .js-line[style*='rgb(90, 169, 230)']").count()
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("#fig1 .js-line[style*='rgb(0, 114, 178)']")  # the chart follows


DRAWN = "[...document.querySelectorAll('.chart')].map(chart => chart.querySelector('.main-svg') !== null)"


def test_paper_has_no_controls_and_is_white(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_selector("#fig4 .main-svg")
    assert page.evaluate(DRAWN) == [True] * 4
    assert page.locator("select:visible, button:visible, input:visible").count() == 0
    assert page.locator("#fig1 .method:visible").count() == 3  # they are the legend
    assert page.locator("#fig1 .js-line[style*='rgb(0, 114, 178)']").count()
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_selector("#fig1 .js-line[style*='rgb(90, 169, 230)']")


def test_charts_are_drawn_when_they_come_near_and_all_for_printing(opened):
    page = opened(viewport={"width": 1280, "height": 400})
    assert page.evaluate(DRAWN)[2:] == [False, False]
    page.locator("#fig2 .chart").scroll_into_view_if_needed()
    page.wait_for_selector("#fig2 .main-svg")
    assert not page.evaluate(DRAWN)[3]
    assert len(page.pdf()) > 50_000
    assert page.evaluate(DRAWN) == [True] * 4


def test_the_policy_stops_scripts_and_requests(browser, written):
    context = browser.new_context()
    page = context.new_page()
    page.goto(written.as_uri())
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))"
    )
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=data: onerror=\"window.hacked = 1\">')")
    assert page.evaluate("fetch('https://example.org').then(() => 'fetched', () => 'refused')") == "refused"
    assert page.evaluate("window.hacked") is None
    context.close()


def test_a_missing_browser_skips_or_fails(monkeypatch):
    monkeypatch.setattr(chromium, "NAMES", ("no-such-browser",))
    monkeypatch.delenv("BILAX_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-browser"), chromium.launched():
        pass
    monkeypatch.setenv("BILAX_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="required"), chromium.launched():
        pass
