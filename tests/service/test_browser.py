"""A person with a browser: log in, submit by the form, watch it run."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.deployment import PATIENCE_S, wait_for
from tests.service.browsing import signed_in
from tests.service.running_service import Service


@pytest.fixture
def page(browser: Browser, four_gpus: Service) -> Iterator[Page]:
    with signed_in(browser, four_gpus) as opened:
        yield opened


PAGES = (
    *("", "jobs", "jobs/new", "cluster", "rounds", "policies", "lab", "fairness", "utilization"),
    *("usage", "secrets", "notifications", "tokens", "audit"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_without_an_error(browser: Browser, demo: Service, scheme: str) -> None:
    wait_for("most sample jobs are there", lambda: len(list(demo.client.jobs())) >= 10)
    with signed_in(browser, demo, color_scheme=scheme) as page:
        for address in PAGES:
            answer = page.goto(f"{demo.url}/{address}")
            assert answer is not None
            assert answer.ok
            page.wait_for_load_state("networkidle")


def test_jobs_that_ran_are_simulated_under_another_policy(browser: Browser, demo: Service) -> None:
    """From the form over its progress to the charts of the result, as the page renews itself."""
    spec = {"team": "vision", "command": "python -m motley_client.sample --steps 20", "gpus": 1, "total_steps": 20}
    jobs = [demo.client.submit({"name": f"history-{number}", **spec}) for number in range(3)]
    for job in jobs:
        demo.wait_for_state(job["id"], "succeeded")
    with signed_in(browser, demo) as page:
        page.goto(f"{demo.url}/lab")
        page.check("input[name=policies][value=srtf]")
        page.fill("[name=with_parameters]", "sia:power=-0.5")
        page.click("text=Simulate")
        expect(page.locator("h1")).to_contain_text("Lab run")
        expect(page.locator("#error")).to_contain_text("Average JCT")
        expect(page.locator("#comparison")).to_contain_text("sia:power=-0.5")
        expect(page.locator(".policy").first).to_contain_text("vision")
        charts = page.locator("[data-figure]")
        expect(page.locator("[data-figure] > .plot-container")).to_have_count(charts.count())


def test_a_job_submitted_by_the_form_runs_to_its_end(page: Page, four_gpus: Service) -> None:
    page.goto(f"{four_gpus.url}/jobs/new")
    page.fill("[name=name]", "from-the-form")
    page.select_option("[name=team]", "vision")
    page.fill("[name=command]", "python -m motley_client.sample --steps 100")
    page.fill("[name=gpus]", "1")
    page.click("main form button[type=submit]")
    expect(page.locator("h1")).to_contain_text("from-the-form")
    (job,) = four_gpus.client.jobs(q="from-the-form")
    ended = four_gpus.wait_for_state(job["id"], "succeeded", "failed", "cancelled")
    assert ended["state"] == "succeeded", (ended, four_gpus.client.logs(job["id"]).data)
    expect(page.locator("body")).to_contain_text("succeeded", timeout=PATIENCE_S * 1000)
    assert b"step 100/100" in four_gpus.client.logs(job["id"]).data


def test_what_was_typed_survives_an_error(page: Page, four_gpus: Service) -> None:
    page.goto(f"{four_gpus.url}/jobs/new")
    page.fill("[name=name]", "too-large")
    page.select_option("[name=team]", "vision")
    page.fill("[name=command]", "true")
    page.fill("[name=gpus]", "64")
    page.click("main form button[type=submit]")
    expect(page.locator("main")).to_contain_text("4 A100")
    expect(page.locator("[name=name]")).to_have_value("too-large")
