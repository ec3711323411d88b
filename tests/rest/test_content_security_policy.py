"""No page breaks the policy that it is sent with: neither ours, nor the administration, nor the description of REST."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.test import Client
from django.urls import NoReverseMatch, reverse
from playwright.sync_api import Page, expect

from jobs_app.models import Job
from scheduler_app.models import Round
from tests.chromium import browser_of_live_server, skip_module_without_chromium  # noqa: F401 - a fixture
from tests.service_lab import Lab

PAGES = ["home", "jobs", "new-job", "cluster", "rounds", "policies", "fairness", "utilization", "tokens", "docs"]
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (v) => violations.push(`${v.violatedDirective}: ${v.blockedURI}`));
"""

skip_module_without_chromium()


@pytest.fixture
def page(browser: Any, cluster: Lab, live_server: Any) -> Iterator[Page]:
    """As staff; there is a job and a round to look at."""
    cluster.submit()
    cluster.tick()
    client = Client()
    client.force_login(cluster.user("root", staff=True))
    context = browser.new_context(base_url=live_server.url)
    context.add_init_script(WATCH)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
    yield context.new_page()
    context.close()


def looked_at(page: Page, address: str) -> list[str]:
    """What the policy forbade there, and what else the browser complained of."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    answer = page.goto(address)
    assert answer is not None
    assert answer.ok, address
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    page.wait_for_load_state("networkidle" if address.startswith("/api/docs") else "load")
    return complaints + page.evaluate("window.violations")


def test_pages_keep_to_the_policy(page: Page) -> None:
    job = reverse("job", args=[Job.objects.get().pk])
    addresses = [reverse(name) for name in PAGES] + [reverse("round", args=[Round.objects.get().pk])]
    addresses += [f"{job}?tab={tab}" for tab in ("overview", "why", "logs", "attempts", "events", "spec")]
    found = {address: looked_at(page, address) for address in addresses}
    assert {address: faults for address, faults in found.items() if faults} == {}


def test_the_description_of_rest_is_drawn(page: Page) -> None:
    page.goto(reverse("docs"))
    expect(page.locator(".opblock").first).to_be_visible()


def test_visitors_get_the_same_policy(page: Page) -> None:
    page.context.clear_cookies()
    assert looked_at(page, "/login/") == []
    assert looked_at(page, "/admin/login/") == []


def test_the_administration_keeps_to_the_policy(page: Page) -> None:
    """Its lists, its forms, and a row of each kind that has one."""
    addresses = [reverse("admin:index")]
    for model in admin.site._registry:
        of_model = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.first()
        for kind, args in (("changelist", []), ("add", []), ("change", [row.pk] if row else None)):
            if args is not None:
                addresses += _address(f"{of_model}_{kind}", args)
    assert len(addresses) > 2 * len(admin.site._registry)
    found = {address: looked_at(page, address) for address in addresses if _is_open(page, address)}
    assert {address: faults for address, faults in found.items() if faults} == {}


def _address(name: str, args: list[Any]) -> list[str]:
    try:
        return [reverse(name, args=args)]
    except NoReverseMatch:
        return []


def _is_open(page: Page, address: str) -> bool:
    """Some rows may not be added by hand."""
    return page.request.get(address).ok


def test_an_injected_script_does_not_run(page: Page) -> None:
    """The policy is at work: this is what a violation looks like."""
    page.goto(reverse("home"))
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned = 1\">')")
    page.wait_for_function("window.violations.length > 0")
    assert page.evaluate("window.pwned") is None
