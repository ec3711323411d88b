"""`motley notifications`: targets are added, listed, changed, tested and removed, and what was sent is listed."""

import json

import pytest

from jobs_app.models import Notification, NotificationTarget
from tests.live_service import Live
from tests.motley_command import Motley

HOOK = "https://example.org/s3cret-path"


@pytest.fixture
def target(service: Live, motley: Motley) -> str:
    """Number of a webhook of ada's."""
    return str(json.loads(motley("notifications", "add", "webhook", HOOK, "-o", "json").stdout)["id"])


def test_the_key_of_a_webhook_is_printed_once_and_its_path_never(service: Live, motley: Motley) -> None:
    added = motley("notifications", "add", "webhook", "-", "-e", "job_ended", "-e", "node_lost", typed=f"{HOOK}\n")
    assert (added.exit_code, added.stdout.splitlines()[1].startswith("whsec_")) == (0, True)
    assert NotificationTarget.objects.get().events == ["job_ended", "node_lost"]
    listed = motley("notifications", "list").stdout
    assert "https://example.org/…" in listed
    assert "s3cret" not in listed + added.stdout
    assert "whsec_" not in listed


def test_without_targets_a_webhook_is_named_which_every_site_takes(service: Live, motley: Motley) -> None:
    listed = motley("notifications", "list").stdout
    assert "motley notifications add webhook https://…" in listed
    assert "mail ADDRESS works where the site sends mail" in " ".join(listed.split())


def test_a_target_is_changed_tested_and_removed(motley: Motley, target: str) -> None:
    changed = motley("notifications", "change", target, "-e", "job_waits").stdout
    assert changed == f"The target {target} is told of: job_waits.\n"
    assert motley("notifications", "test", target).exit_code == 0
    assert motley("notifications", "sent").stdout.splitlines()[1].split()[:3] == [target, "test", "pending"]
    soon = motley("notifications", "test", target)
    assert (soon.exit_code, "within the last 10 s" in soon.stderr) == (5, True)
    assert motley("notifications", "remove", target).exit_code == 0
    assert not NotificationTarget.objects.exists()
    assert motley("notifications", "remove", target).exit_code == 4


def test_what_was_given_up_is_sent_again(motley: Motley, target: str) -> None:
    motley("notifications", "test", target)
    Notification.objects.update(state="dead", tries=12, error="the server answered 500")
    row = motley("notifications", "sent").stdout.splitlines()[1]
    assert "given up" in row
    assert "the server answered 500" in row
    number = motley("notifications", "sent", "-o", "name").stdout.strip()
    assert motley("notifications", "resend", number).exit_code == 0
    assert Notification.objects.get().state == "pending"


def test_an_address_that_is_none_is_refused_with_what_to_write(motley: Motley) -> None:
    refused = motley("notifications", "add", "webhook", "http://user:pass@example.org/hook")
    assert (refused.exit_code, "Leave name and password out" in refused.stderr) == (2, True)
    assert not NotificationTarget.objects.exists()


def test_targets_of_a_team_are_for_its_leads(service: Live, motley: Motley) -> None:
    refused = motley("notifications", "add", "webhook", HOOK, "--team", "vision")
    assert (refused.exit_code, "Only leads" in refused.stderr) == (3, True)
