"""The system's Chromium, for the tests of every page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import geteuid
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
PHONE = 360  # pixels
ATTEMPTS = 5


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; a visible skip where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: scripts/system-packages installs it, as root")
    sandbox = ["--no-sandbox"] if geteuid() == 0 else []  # Chromium's own rule for root
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield browser
        browser.close()


def screenshot(target: Any) -> bytes:
    """Of a page or an element. A busy Chromium at times cannot capture what it has just loaded."""
    from playwright.sync_api import Error

    for _ in range(ATTEMPTS - 1):
        try:
            return bytes(target.screenshot())
        except Error as error:
            if "Unable to capture screenshot" not in str(error):
                raise
    return bytes(target.screenshot())
