"""The site: it builds without a warning, asks nothing of another host, and reads well in a real browser."""

import functools
import os
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import chromium
import pytest
from playwright.sync_api import TimeoutError

import bilax

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "website"))

import docstrings  # noqa: E402
import generated  # noqa: E402
import mathematics  # noqa: E402

OPENED = {
    "start": "index.html",
    "tutorial": "your-own-problem.html",
    "reference": "reference/methods.html",
    "decision": "decisions/0001-algorithms-1-to-3.html",
    "gallery": "gallery.html",
}


def test_every_example_has_a_small_picture():
    for path in generated.examples():
        picture = generated.THUMBNAILS / f"{path.stem}.png"
        assert picture.is_file(), f"{path.name} has no picture; run: make gallery NAME={path.stem}"
        assert picture.stat().st_size <= 40_000


def test_an_example_without_a_picture_ends_the_build(monkeypatch, tmp_path):
    monkeypatch.setattr(generated, "THUMBNAILS", tmp_path)
    with pytest.raises(FileNotFoundError, match="run: make gallery"):
        generated.gallery()


def test_a_formula_that_cannot_be_converted_ends_the_build():
    with pytest.raises(ValueError, match="cannot convert"):
        mathematics.mathml(r"\nosuchcommand x")


def test_rows_of_a_formula_are_aligned():
    assert mathematics.mathml(r"a &= b \\ c &= d", block=True).count("<mtd") == 4


def test_a_docstring_becomes_markdown():
    text = "Of :math:`y_1`.\n\n.. math::\n    a &= b\n\nMore.\n\n>>> 1\n1\n\nEnd."
    assert docstrings.markdown(text) == ("Of $y_1$.\n\n$$\na &= b\n$$\n\nMore.\n\n```pycon\n>>> 1\n1\n```\n\nEnd.")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout + run.stderr == ""
    return folder


@pytest.fixture(scope="module")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as browser:
        yield browser


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    there = {
        name for page in site.glob("reference/*.html") for name in re.findall(r'id="(bilax[\w.]*)"', page.read_text())
    }
    modules = [import_module(f"bilax.{name}") for name in ("datasets", "hypergrad", "problems", "sklearn", "theory")]
    for module in (bilax, *modules):
        for name in module.__all__:
            one = getattr(module, name)
            if callable(one):
                assert {f"{module.__name__}.{name}", f"{one.__module__}.{name}", f"bilax.{name}"} & there, name
    packages = {f"bilax.{name}" for name in bilax._SUBPACKAGES}
    text = "".join(page.read_text() for page in site.glob("reference/*.html"))
    assert all(name in text for name in packages | {"bilax.ALGORITHMS", "bilax.__version__"})


@pytest.mark.slow
def test_all_commands_and_examples_are_there(site):
    page = (site / "reference" / "command-line.html").read_text()
    assert re.findall(r'<h2 id="bilax-(\w+)', page) == [
        "clean",
        "demo",
        "list",
        "doctor",
        "run",
        "reproduce",
        "tune",
        "report",
    ]
    for path in generated.examples():
        assert (site / "project" / "examples" / path.name).read_text() == generated.alone(path)
        assert f"project/examples/{path.name}" in (site / "gallery.html").read_text()


@pytest.mark.slow
def test_formulas_are_mathml(site):
    for page in site.rglob("*.html"):
        assert "arithmatex" not in page.read_text(), page
    assert (site / OPENED["decision"]).read_text().count("<math") > 20


def _searched(page, words):
    """Type it; again, if the page was not listening yet."""
    page.wait_for_load_state("networkidle")
    box, found = page.locator("input.md-search__input"), page.locator(".md-search-result__item a").first
    for attempt in range(4):
        box.fill("")
        box.press_sequentially(words)
        try:
            return found.wait_for(timeout=15_000)
        except TimeoutError:
            if attempt == 3:
                raise


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_in_a_browser(browser, address, width):
    """No error, no request of another host, no scrolling sideways, and pictures that are there."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    trouble = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: request.url.startswith((address, "data:")) or trouble.append(request.url))
    page.on("response", lambda response: response.ok or response.status == 304 or trouble.append(response.url))
    for name, path in OPENED.items():
        chromium.shown(page, address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.locator("article h1").first.is_visible()
    page.goto(address)
    if width < 960:
        page.locator("label[for=__search]").first.click()
    _searched(page, "MRBO")
    assert page.locator('.md-search-result__item a[href*="reference/methods.html"][href$="#bilax.MRBO"]').count() == 1
    assert trouble == []
