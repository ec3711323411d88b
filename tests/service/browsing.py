"""A real browser, and a person who has logged in with it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.chromium import CHROMIUM
from tests.deployment import PATIENCE_S
from tests.service.running_service import Service

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None and os.environ.get("CI") != "true":
        pytest.skip("no Chromium: install the package chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"])
        yield running
        running.close()


@contextmanager
def signed_in(browser: Browser, service: Service, *, as_admin: bool = False, **look: Any) -> Iterator[Page]:
    """A page of the demo user or of the administrator; nothing may be written to the console as an error."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 760}, **look})
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_default_timeout(PATIENCE_S * 1000)
    name, password = _administrator(service) if as_admin else _demo_user(service)
    page.goto(f"{service.url}/login/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.click("main button[type=submit]")
    yield page
    context.close()
    assert not faults


def _demo_user(service: Service) -> tuple[str, str]:
    return service.login["MOTLEY_USER"], service.login["MOTLEY_PASSWORD"]


def _administrator(service: Service) -> tuple[str, str]:
    """As the first start printed them."""
    found = re.search(r"administrator: (\S+)  password: (\S+)", service.log.read_text())
    assert found is not None
    return found[1], found[2]
