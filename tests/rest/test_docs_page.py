"""The page that describes REST: Motley's header, its theme, and texts that can be read."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from tests.chromium import browser_of_live_server, skip_module_without_chromium  # noqa: F401 - a fixture

FAINT_TEXTS = (Path(__file__).parent / "contrast.js").read_text()
WITH_PARAMETERS, WITH_BODY, THAT_DELETES = "jobs_list", "jobs_create", "agents_destroy"

expect.set_options(timeout=300_000)  # a limit for a loaded machine; nothing waits for it
MOST_SCROLLS = 300
DARK = re.compile("dark-mode")

skip_module_without_chromium()


@pytest.fixture
def page(browser: Browser, live_server: Any, plain_static: None, db: None) -> Iterator[Page]:
    """The page without an account; colours change at once."""
    context = browser.new_context(base_url=live_server.url, color_scheme="light", reduced_motion="reduce")
    opened = context.new_page()
    opened.goto(reverse("docs"))
    expect(opened.locator(".opblock").first).to_be_visible()
    yield opened
    context.close()


def open_operation(page: Page, name: str) -> None:
    """Scroll until it is there, for of many operations Swagger UI renders those near the screen alone, and open it."""
    operation = page.locator(f"[id$=-{name}]")
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(400, 400)
    for _ in range(MOST_SCROLLS):
        if operation.count():
            break
        page.mouse.wheel(0, 400)
        page.wait_for_timeout(50)
    operation.locator(".opblock-summary-control").click(timeout=300_000)
    expect(operation.locator(".responses-inner")).to_be_visible()


def is_dark(page: Page) -> bool:
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) < 3 * 128


def test_texts_can_be_read_in_the_theme_of_the_machine_and_in_the_chosen_one(page: Page) -> None:
    assert not is_dark(page)
    for name in (THAT_DELETES, WITH_PARAMETERS, WITH_BODY):
        open_operation(page, name)
        assert page.evaluate(FAINT_TEXTS) == []
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_class(DARK)
        assert is_dark(page)
        assert page.evaluate(FAINT_TEXTS) == []
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).not_to_have_class(DARK)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_class(DARK)
    page.locator("#theme").click()
    assert not is_dark(page)
    assert page.locator("header.top a.brand").get_attribute("href") == reverse("home")
