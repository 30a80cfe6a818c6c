"""A headless Chromium for tests of pages, driven through the DevTools protocol."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The sandbox and /dev/shm are not there for root in a container; these tests open files of their own only.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def binary() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


def give_up(reason: str):
    """Skip the test, or fail where the environment promises a browser."""
    if os.environ.get("BILAX_BROWSER") == "required":
        pytest.fail(f"BILAX_BROWSER=required, but {reason}")
    pytest.skip(reason)


@contextmanager
def launched():
    """Start the browser and end it; give up if there is none."""
    path = binary()
    if path is None:
        give_up(f"none of {', '.join(NAMES)} is installed (on Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed: pip install playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def shown(page, address: str):
    """Open a page, and wait until the window is as narrow as was asked for: on a busy machine that comes later."""
    page.goto(address)
    page.wait_for_function("width => innerWidth <= width", arg=page.viewport_size["width"])
