"""The page of a report in a real browser."""

import re

import chromium
import numpy as np
import pytest
from report_example import EVIL, NAN, example

from bilax.report import Gallery, Page, Specimen, Verdict, write


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
