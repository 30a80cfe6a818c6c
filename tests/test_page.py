"""The page of a report in a real browser."""

import re

import chromium
import numpy as np
import pytest
from report_example import EVIL, NAN, example, with_zeros

from bilax.report import Gallery, Page, Specimen, Verdict, write

LONG = "mrbo[gamma=300,lam=1,c1=0.5,c2=0.5,d=10,m=1000,Q=3,eta=auto,S=1000], blocks, 10 s"
CLAIM = "VRBO and stocBiO converge much faster (at least twice) than all others"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    verdicts = (
        Verdict(EVIL, "Figure 1, all methods", "paper", "holds", EVIL, "Figure 1"),
        Verdict(CLAIM, "Figure 1", "paper", "fails", "seconds: VRBO 1, stocBiO 2"),
        Verdict(CLAIM, "Figure 2", "paper", "undecided", "1 > 2"),
        Verdict(CLAIM, "Figure 2", "tuned", "fails", "1 > 2"),
        Verdict("c", EVIL, EVIL, EVIL, ""),
    )
    specimens = tuple(Specimen(np.eye(8) * i, str(i % 3), str(i % 2), i / 9 if i else NAN) for i in range(10))
    figures = (
        example("fig1"),
        example("fig2", (EVIL, "VRBO", "MRBO"), x="k", y="norm_v", log_y=True),
        example("fig3", ("VRBO", LONG, LONG + "s"), log_x=True),
        example("fig4", tuple(f"method {number}" for number in range(24))),
    )
    page = Page(
        EVIL,
        f"{EVIL}\n\nMore.",
        figures,
        verdicts,
        (Gallery(EVIL, EVIL, specimens),),
        (("version", "1"), ("a long one", "x" * 500), (EVIL, EVIL)),
        answer=f"VRBO ends with the lowest loss on the true training labels: 0.51, before {EVIL} with 0.7.",
        about="What one need not know first.",
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
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}).new_page()
    trouble = []
    page.set_default_timeout(60_000)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or trouble.append(request.url)
    )
    chromium.shown(page, written.as_uri())
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
        for (const details of document.querySelectorAll("details")) details.open = details.matches(".verdicts > *");
        scrollTo(0, 0);
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


@pytest.mark.slow
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
    assert min(shown(page, LINES)[0]) > 0  # zero has no logarithm
    page.uncheck("#fig1 [name=log_x]")
    assert shown(page, "chart._fullLayout.xaxis.type") == "linear"


def test_what_a_logarithm_leaves_out_is_said(browser, tmp_path):
    figure = with_zeros(example("fig1", ("MRBO", "VRBO")), "VRBO")
    page, trouble = visit(browser, write(Page("p", "", (figure,)), tmp_path))
    assert "logarithm" not in page.text_content("#fig1 .remark")
    page.check("#fig1 [name=log_y]")
    assert page.text_content("#fig1 .remark") == "0 and less have no logarithm and are not drawn: VRBO."
    assert not trouble
    page.close()


def test_curves_can_be_hidden_and_shown(page):
    count = lambda: shown(page, "chart.querySelectorAll('.scatterlayer .trace .js-line').length")
    all_ = count()
    page.locator("#fig1 .methods").get_by_label("MRBO").uncheck()
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


FOCUS = """(() => {
    const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
    return {
        name: e.closest("#fig1") ? e.name || e.dataset.all || e.textContent : e.closest("nav") ? "link" : e.id,
        outlined: style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2,
        seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    };
})()"""


@pytest.mark.slow
def test_everything_works_with_the_keyboard_alone(page):
    assert page.evaluate("document.querySelector('a, button, input, select, summary, [tabindex]').className") == "skip"
    page.focus(".skip")
    names = []
    for _ in range(60):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        assert focus["outlined"], focus
        assert focus["seen"], focus
        name, before = focus["name"], shown(page, LINES)
        names.append(name)
        if name in ("x", "y"):
            page.keyboard.press("ArrowDown")
            assert page.evaluate("document.activeElement.selectedIndex") == 1
        elif name == "log_x":
            page.keyboard.press("Space")
            assert shown(page, "chart._fullLayout.xaxis.type") == "log"
        elif name == "method":
            page.keyboard.press("Space")
            assert shown(page, LINES) != before
            page.keyboard.press("Space")
        elif name == "none":
            page.keyboard.press("Enter")
            assert shown(page, LINES) == []
        elif name.startswith("Settings"):
            page.keyboard.press("Space")
            assert page.evaluate("document.activeElement.parentElement.open")
            break
    assert {"x", "y", "log_x", "log_y", "1", "none"} <= set(names)
    assert names.count("method") == 3
    assert names.count("link") == 7
    page.focus("#page-verdicts summary")
    page.keyboard.press("Enter")
    assert not page.locator("#page-verdict-rows").is_visible()
    page.keyboard.press("Enter")
    assert page.locator("#page-verdict-rows").is_visible()


def bottom(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom")


def test_the_first_screen_says_what_was_run_and_the_answer_and_shows_the_curves(page):
    assert page.locator("h1, .ran, .answer, #fig1 .chart").evaluate_all(
        "all => all.map(e => e.tagName + e.className.split(' ')[0])"
    ) == ["H1", "Pran", "Pran", "Panswer", "DIVchart"]
    assert bottom(page, "#fig1 .chart") <= 800
    assert bottom(page, "#fig1 .methods") <= 800  # and which curve is which
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_names_of_many_curves_are_no_longer_than_the_chart(page):
    chart, names = (page.locator(f"#fig4 {part}").bounding_box() for part in (".chart", ".methods"))
    assert names["y"] + names["height"] <= chart["y"] + chart["height"] <= chart["y"] + 440
    assert chart["x"] + chart["width"] <= names["x"] + 10


def test_a_method_looks_the_same_in_every_figure(page):
    looks = """f => {
        const section = document.getElementById(f), chart = section.querySelector(".chart");
        const lines = chart.data.filter(t => t.mode !== "lines");
        const swatches = [...section.querySelectorAll(".method .swatch")].map(s => s.outerHTML);
        return Object.fromEntries(lines.map((t, i) =>
            [t.name, [t.line.color, t.line.dash, t.marker.symbol, swatches[i]]]));
    }"""
    page.locator("#fig2 .chart").scroll_into_view_if_needed()
    page.wait_for_selector("#fig2 .main-svg")
    one, two = page.evaluate(looks, "fig1"), page.evaluate(looks, "fig2")
    assert list(one) == list(two)[::-1]
    assert one == two
    assert len({str(look) for look in one.values()}) == 3


TICKS = """[...chart.querySelectorAll(".xtick text")].map(t => [t.textContent, t.getBoundingClientRect().x])"""


def test_a_logarithmic_axis_begins_at_zero(page):
    page.check("#fig1 [name=log_x]")
    names, places = zip(*shown(page, TICKS), strict=True)
    assert names == ("0", "1", "2", "5", "10")
    assert list(places) == sorted(places)
    left = shown(page, "chart.getBoundingClientRect().left + chart._fullLayout.xaxis._offset")
    assert left <= places[0] < places[-1] < left + shown(page, "chart._fullLayout.xaxis._length")
    starts = shown(page, LINES)
    assert {line[0] for line in starts} == {starts[0][0]}  # all begin at one place ...
    assert 0 < starts[0][0] < min(starts[0][1:]) / 1.9  # ... apart from all others
    page.evaluate("Plotly.Fx.hover(document.querySelector('#fig1 .chart'), [{curveNumber: 3, pointNumber: 0}])")
    assert "time in seconds: 0 (" in page.wait_for_selector("#fig1 .hoverlayer .hovertext").text_content()
    page.evaluate("Plotly.relayout(document.querySelector('#fig1 .chart'), {'xaxis.range': [0.4, 0.7]})")
    page.wait_for_function("[...document.querySelectorAll('#fig1 .xtick text')].some(t => t.textContent === '4')")
    page.evaluate("Plotly.relayout(document.querySelector('#fig1 .chart'), {'xaxis.autorange': true})")
    page.wait_for_function("document.querySelector('#fig1 .xtick text').textContent === '0'")
    page.uncheck("#fig1 [name=log_x]")
    assert min(shown(page, LINES)[0]) == 0


# Text that stands in a column of single words, or of parts of words.
NARROW = """() => {
    const found = [];
    for (const e of document.querySelectorAll("th, td, caption, label, a, h1, h2, p, summary, dt, dd, .where, .badge")) {
        if (!e.checkVisibility() || [...e.children].some(c => getComputedStyle(c).display === "block")) continue;
        const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), range = document.createRange(), ends = [];
        while (walker.nextNode()) {
            range.selectNode(walker.currentNode);
            ends.push(...[...range.getClientRects()].map(box => Math.round(box.bottom / 6)));
        }
        const lines = new Set(ends).size;
        const letters = e.textContent.trim().length;
        if (lines > 2 && letters / lines < 8) found.push(`${e.tagName} ${lines} lines: ${e.textContent}`);
    }
    return found;
}"""
# Text that is less than 4.5 times as bright or as dark as what is behind it.
FAINT = """() => {
    const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05);
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const e of document.querySelectorAll("body *:not(script, style, svg *)")) {
        const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!text || !e.checkVisibility() || e.closest(":disabled, .skip")) continue;
        const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
        if (Math.max(a, b) / Math.min(a, b) < 4.5) found.push(`${e.tagName}.${e.className}: ${e.textContent.slice(0, 40)}`);
    }
    return found;
}"""


def test_labels_do_not_wrap_into_columns_of_words(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(NARROW) == []


def test_text_stands_out_by_day_and_by_night(page):
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(FAINT) == []


def test_contents_are_at_the_side_of_a_wide_screen(page):
    side = page.locator("#page-contents").bounding_box()
    content = page.locator(".content").bounding_box()
    assert (side["x"], side["y"], side["height"]) == (0, 0, 800)
    assert side["x"] + side["width"] <= content["x"]
    assert not page.locator(".open-contents").is_visible()
    page.click("#page-contents a[href='#page-verdicts']")
    page.wait_for_selector("#page-contents a[href='#page-verdicts'][aria-current=true]")
    assert page.locator("#page-contents").bounding_box()["y"] == 0  # it stays
    assert page.locator("#page-contents [aria-current]").count() == 1


def test_names_are_text_everywhere(page):
    visible = re.sub(r"\s+", " ", EVIL).strip()
    assert page.evaluate("window.hacked") is None
    assert page.locator("b").count() == 0
    same_text = lambda selector: re.sub(r"\s+", " ", page.locator(selector).last.text_content()).strip()
    assert same_text("#fig1 .method span") == visible
    assert same_text("#fig1 tbody th") == visible
    assert re.sub(r"\s+", " ", page.locator("#page-verdict-rows th p").first.text_content()).strip() == visible
    assert re.sub(r"\s+", " ", page.title()).strip() == visible
    page.evaluate("Plotly.Fx.hover(document.querySelector('#fig1 .chart'), [{curveNumber: 5, pointNumber: 3}])")
    hover = page.wait_for_selector("#fig1 .hoverlayer .hovertext").text_content()
    assert "<script>window.hacked=1</script><b>bold</b> $x$ %{x} &amp;" in hover
    assert "median of 5 seeds" in hover
    assert page.evaluate("window.hacked") is None
    assert page.locator("b").count() == 0


def test_verdicts_have_a_row_for_every_claim_and_a_cell_for_every_variant(page):
    assert page.locator("#page-verdict-rows > tr").count() == 3
    heads = page.locator(".verdicts thead th").all_text_contents()
    assert heads == ["Claim", "paper", "tuned", EVIL]
    row = page.locator("#page-verdict-rows > tr").nth(1)
    assert row.locator("td").all_inner_texts()[1:] == ["Figure 2\n✗ fails", ""]
    assert row.locator("td").first.locator(".badge").all_text_contents() == ["✗ fails", "? undecided"]
    assert not row.locator("dd").first.is_visible()
    row.locator("summary").click()
    assert row.locator("dd").first.text_content() == "seconds: VRBO 1, stocBiO 2"
    assert page.evaluate(
        "document.querySelector('#fig4').compareDocumentPosition(document.querySelector('#page-verdicts'))"
    ) == 4  # after all curves  # fmt: skip


@pytest.mark.slow
def test_a_phone_has_a_drawer_and_never_scrolls_sideways(opened):
    page = opened(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme="dark")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#fig1 .js-line[style*='rgb(60, 130, 190)']").count()
    assert page.evaluate(NARROW) == []
    assert page.evaluate(FAINT) == []
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("#fig1 .js-line[style*='rgb(23, 84, 172)']")  # the chart follows
    assert page.evaluate(FAINT) == []
    contents = page.locator("#page-contents")
    assert not contents.is_visible()
    page.focus(".open-contents")
    page.keyboard.press("Enter")
    assert contents.is_visible()
    assert contents.bounding_box()["width"] < 350
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('nav') !== null")
    page.keyboard.press("Escape")
    assert not contents.is_visible()
    assert page.evaluate("document.activeElement.className") == "open-contents"
    page.tap(".open-contents")
    page.tap("#page-contents a[href='#page-facts']")
    assert not contents.is_visible()
    page.wait_for_function("document.querySelector('#page-facts').getBoundingClientRect().top < innerHeight")


DRAWN = "[...document.querySelectorAll('.chart')].map(chart => chart.querySelector('.main-svg') !== null)"


@pytest.mark.slow
def test_paper_has_no_controls_and_is_white(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_selector("#fig4 .main-svg")
    assert page.evaluate(DRAWN) == [True] * 4
    assert page.locator("select:visible, button:visible, input:visible, nav:visible, summary:visible").count() == 0
    assert page.locator("#page-verdict-rows dd").first.is_visible()  # unfolded
    assert page.evaluate(FAINT) == []
    assert page.locator("#fig1 .method:visible").count() == 3  # they are the legend
    assert page.locator("#fig1 .js-line[style*='rgb(23, 84, 172)']").count()
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_selector("#fig1 .js-line[style*='rgb(60, 130, 190)']")
    assert not page.locator("#page-verdict-rows dd").first.is_visible()


@pytest.mark.slow
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
    page.set_default_timeout(60_000)
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
