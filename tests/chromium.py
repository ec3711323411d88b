"""Chromium for tests that open pages of Django's live server."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def skip_module_without_chromium() -> None:
    """Called as a module of tests is imported; in CI the tests then fail."""
    if CHROMIUM is None and os.environ.get("CI") != "true":
        pytest.skip("no Chromium: install the package chromium", allow_module_level=True)


@pytest.fixture(name="browser", scope="module")
def browser_of_live_server() -> Iterator[Browser]:
    # Playwright's loop runs in this thread, and Django would take its own queries for blocking ones.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
