"""The page and REST: adding, testing, changing and deleting targets, and who may do so."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs_app.models import Notification, NotificationTarget, Team
from jobs_app.notifications.sending import send_due
from tests.notification_server import Received
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

TARGETS = "/api/v1/notification-targets"
PAGE = reverse("notifications")


@pytest.fixture
def browser(cluster: Lab) -> Client:
    client = Client()
    client.force_login(cluster.user())
    return client


def added(browser: Client, hook: Received) -> NotificationTarget:
    answer = browser.post(PAGE, {"kind": "webhook", "address": hook.url, "events": ["job_failed", "job_waits"]})
    assert re.search(r"whsec_[\w+/=]{40,}", answer.content.decode())
    return NotificationTarget.objects.get()


def test_a_target_added_on_the_page_gets_the_test_that_its_button_asks_for(browser: Client, hook: Received) -> None:
    target = added(browser, hook)
    assert target.events == ["job_failed", "job_waits"]
    browser.post(reverse("act-on-target", args=[target.pk, "test"]))
    send_due(timezone.now())
    assert hook.messages[0]["text"] == "a test, asked for by ada"
    page = browser.get(PAGE).content.decode()
    assert "a test, asked for by ada" in page
    assert "whsec_" not in page


def test_a_second_test_within_seconds_is_refused(browser: Client, hook: Received) -> None:
    address = reverse("act-on-target", args=[added(browser, hook).pk, "test"])
    browser.post(address)
    assert "A test was asked for within the last 10 s" in browser.post(address, follow=True).content.decode()
    assert Notification.objects.count() == 1


def test_events_are_changed_and_one_at_least_is_needed(browser: Client, hook: Received) -> None:
    target = added(browser, hook)
    address = reverse("act-on-target", args=[target.pk, "change"])
    browser.post(address, {"events": ["node_lost", "job_ended"]})
    assert "Choose at least one event" in browser.post(address, follow=True).content.decode()
    target.refresh_from_db()
    assert target.events == ["job_ended", "node_lost"]


def test_a_wrong_address_is_said_beside_its_field(browser: Client) -> None:
    answer = browser.post(PAGE, {"kind": "webhook", "address": "https://10.0.0.1/", "events": ["job_failed"]})
    assert "10.0.0.1, which is not public" in answer.content.decode()
    assert not NotificationTarget.objects.exists()


def test_one_that_was_given_up_is_sent_again(browser: Client, hook: Received) -> None:
    target = added(browser, hook)
    browser.post(reverse("act-on-target", args=[target.pk, "test"]))
    hook.statuses = [404]
    send_due(timezone.now())
    dead = Notification.objects.get()
    assert "Send again" in browser.get(PAGE).content.decode()
    browser.post(reverse("send-notification", args=[dead.pk]))
    send_due(timezone.now())
    dead.refresh_from_db()
    assert (dead.state, len(hook.bodies)) == ("sent", 2)


def test_targets_of_a_team_are_seen_by_its_members_and_set_by_administrators(cluster: Lab) -> None:
    spec = {"kind": "webhook", "address": "https://example.org/", "events": ["failed_share"], "team": "vision"}
    root = cluster.user("root", "admins", staff=True)
    ada, eve = caller(cluster.user()), caller(cluster.user("eve", "language"))
    assert ada.post(TARGETS, spec, format="json").data["code"] == "not_allowed"
    assert eve.post(TARGETS, spec, format="json").status_code == 422
    assert caller(root).post(TARGETS, spec, format="json").status_code == 403  # its token is of scope submit
    target = caller(root, Scope.ADMIN).post(TARGETS, spec, format="json").data
    assert [one["id"] for one in ada.get(TARGETS).data["results"]] == [target["id"]]
    assert eve.get(TARGETS).data["results"] == []
    for answer in (
        ada.patch(f"{TARGETS}/{target['id']}", {"events": ["job_ended"]}, format="json"),
        ada.post(f"{TARGETS}/{target['id']}/test"),
        ada.delete(f"{TARGETS}/{target['id']}"),
    ):
        assert answer.status_code == 403


def test_a_lead_sets_the_targets_of_the_team_and_of_no_other(cluster: Lab) -> None:
    lead, eve = cluster.user(), cluster.user("eve", "language")
    Team.objects.get(name="vision").leads.add(lead, eve)
    spec = {"kind": "webhook", "address": "https://example.org/", "events": ["failed_share"], "team": "vision"}
    target = caller(lead).post(TARGETS, spec, format="json").data
    assert caller(lead).post(f"{TARGETS}/{target['id']}/test").status_code == 202
    assert caller(eve).post(TARGETS, spec, format="json").status_code == 422
    assert caller(lead).post(TARGETS, spec | {"team": "language"}, format="json").status_code == 422
    browser = Client()
    browser.force_login(lead)
    page = browser.get(PAGE).content.decode()
    assert "vision</option>" in page
    assert "language</option>" not in page


def test_a_persons_target_is_not_told_of_shares_of_teams(cluster: Lab) -> None:
    spec = {"kind": "webhook", "address": "https://example.org/", "events": ["failed_share"]}
    answer = caller(cluster.user()).post(TARGETS, spec, format="json")
    assert answer.data["errors"][0]["pointer"] == "/events"
