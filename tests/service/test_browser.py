"""A person with a browser: sign in, submit by the form, watch it run."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from running_service import PATIENCE_S, Service

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SCREENSHOTS = os.environ.get("MOTLEY_SCREENSHOTS")
"""A folder for pictures of the pages; the README's comes from here."""

if CHROMIUM is None and os.environ.get("CI") != "true":
    pytest.skip("no Chromium: install the package chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"])
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """Signed in as the demo user; nothing may be written to the console as an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.set_default_timeout(PATIENCE_S * 1000)
    opened.goto(f"{service.url}/login/")
    opened.fill("input[name=username]", service.login["MOTLEY_USER"])
    opened.fill("input[name=password]", service.login["MOTLEY_PASSWORD"])
    opened.click("main button[type=submit]")
    yield opened
    context.close()
    assert not faults


def test_a_job_submitted_by_the_form_runs_to_its_end(page: Page, service: Service) -> None:
    service.declare(a100=2, t4=2)
    page.goto(f"{service.url}/jobs/new")
    page.fill("[name=name]", "from-the-form")
    page.select_option("[name=team]", "vision")
    page.fill("[name=command]", "python -m motley_client.sample --steps 100")
    page.fill("[name=gpus]", "1")
    page.click("main form button[type=submit]")
    expect(page.locator("h1")).to_contain_text("from-the-form")
    expect(page.locator("body")).to_contain_text("succeeded", timeout=PATIENCE_S * 1000)

    job = next(iter(service.client.jobs(q="from-the-form")))
    assert job["state"] == "succeeded"
    assert b"step 100/100" in service.client.logs(job["id"]).data


def test_what_was_typed_survives_an_error(page: Page, service: Service) -> None:
    service.declare(a100=2)
    page.goto(f"{service.url}/jobs/new")
    page.fill("[name=name]", "too-large")
    page.select_option("[name=team]", "vision")
    page.fill("[name=command]", "true")
    page.fill("[name=gpus]", "64")
    page.click("main form button[type=submit]")
    expect(page.locator("main")).to_contain_text("2 a100")
    expect(page.locator("[name=name]")).to_have_value("too-large")
