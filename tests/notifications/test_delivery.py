"""Notifications reach webhooks, mail and Slack: at least once, signed, with retries, and once where it can be had."""

import base64
import hashlib
import hmac
from collections.abc import Collection
from datetime import datetime, timedelta
from threading import Event

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Job, Notification, NotificationTarget, Team
from jobs_app.notifications import sending
from jobs_app.notifications.outbox import Outcome
from jobs_app.notifications.sending import GAP, LEASE, Delivery, Message, send_due, take
from jobs_app.notifications.targets import NewTarget, add_target
from tests.notification_server import Mailbox, Received
from tests.service_lab import Lab

Kind = NotificationTarget.Kind
State = Notification.State


def webhook_of(
    actor: User, hook: Received, events: Collection[str] = ("job_ended",), *, team: Team | None = None
) -> NewTarget:
    return add_target(Kind.WEBHOOK, hook.url, events, team=team, actor=actor)


def states() -> list[str]:
    return list(Notification.objects.order_by("pk").values_list("state", flat=True))


def send_later(after: timedelta = timedelta(days=2)) -> None:
    send_due(timezone.now() + after)


def test_a_webhook_tells_of_a_job_that_failed_once_it_has(cluster: Lab, hook: Received) -> None:
    webhook_of(cluster.user(), hook, ["job_failed"])
    good, bad = cluster.submit("true", name="good"), cluster.submit("exit 3", name="bad")
    cluster.until_state(good, Job.State.SUCCEEDED)
    cluster.until_state(bad, Job.State.FAILED)
    send_due(timezone.now())
    (message,) = hook.messages
    assert message["event"] == "job_failed"
    facts = {name: message["job"][name] for name in ("id", "name", "team", "owner", "state", "exit_code")}
    assert facts == {
        "id": str(bad.pk),
        "name": "bad",
        "team": "vision",
        "owner": "ada",
        "state": "failed",
        "exit_code": 3,
    }
    assert message["text"] == "job bad of team vision: failed"


def test_a_message_is_signed_as_standard_webhooks_are(cluster: Lab, hook: Received) -> None:
    key = webhook_of(cluster.user(), hook).key
    cancel_job(cluster.submit(), actor=None)
    send_due(timezone.now())
    body, headers = hook.bodies[0], hook.headers[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(base64.b64decode(key.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-id"] == hook.messages[0]["id"]
    assert abs(timezone.now().timestamp() - int(headers["webhook-timestamp"])) < 60


def test_nothing_is_sent_of_an_end_that_was_rolled_back(cluster: Lab, hook: Received) -> None:
    webhook_of(cluster.user(), hook)
    job = cluster.submit()
    with transaction.atomic():
        cancel_job(job, actor=None)
        transaction.set_rollback(True)
    send_due(timezone.now())
    assert (states(), hook.bodies) == ([], [])


def test_a_server_that_fails_is_tried_again_after_a_pause_with_the_same_id(cluster: Lab, hook: Received) -> None:
    target = webhook_of(cluster.user(), hook).target
    cancel_job(cluster.submit(), actor=None)
    hook.statuses = [500, 503]
    now = timezone.now()
    for after_s in (0, 5, 15, 20, 60):  # pauses of 10 s and 30 s
        send_due(now + timedelta(seconds=after_s))
    assert [message["id"] for message in hook.messages] == [hook.messages[0]["id"]] * 3
    assert states() == ["sent"]
    target.refresh_from_db()
    assert (target.failures, target.retry_at) == (0, None)


@pytest.mark.parametrize("status", [302, 500])
def test_what_no_server_takes_for_a_day_is_given_up_and_says_why(cluster: Lab, hook: Received, status: int) -> None:
    webhook_of(cluster.user(), hook)
    cancel_job(cluster.submit(), actor=None)
    hook.statuses, hook.location = [status] * 2, hook.url if status == 302 else ""
    send_due(timezone.now())
    assert states() == ["pending"]
    Notification.objects.update(created_at=timezone.now() - timedelta(days=2))
    send_later()
    given_up = Notification.objects.get()
    assert (given_up.state, given_up.tries) == ("dead", 2)
    assert str(status) in given_up.error
    assert len(hook.bodies) == 2  # no redirect was followed


def test_a_refusal_of_one_message_is_final_and_holds_no_other_up(cluster: Lab, hook: Received) -> None:
    webhook_of(cluster.user(), hook)
    hook.statuses = [400]
    for _ in range(2):
        cancel_job(cluster.submit(), actor=None)
    send_due(timezone.now())
    assert states() == ["dead", "sent"]


def test_a_message_whose_sender_died_is_sent_by_another_when_its_lease_is_over(cluster: Lab, hook: Received) -> None:
    webhook_of(cluster.user(), hook)
    cancel_job(cluster.submit(), actor=None)
    now = timezone.now()
    assert len(take(now)) == 1  # and then it dies
    assert (send_due(now), hook.bodies) == (0, [])
    send_due(now + LEASE + timedelta(seconds=1))
    assert (len(hook.bodies), states()) == (1, ["sent"])


def test_what_one_target_has_is_stored_while_another_keeps_us_waiting(
    cluster: Lab, hook: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lease of what was sent ends meanwhile, and another sender sends it again."""
    first, _ = (webhook_of(cluster.user(), hook).target.pk for _ in range(2))
    cancel_job(cluster.submit(), actor=None)
    stored, settle = Event(), sending.settle

    def deliver(message: Message) -> Outcome:
        waited = message.target.pk == first or stored.wait(10)
        return Outcome(sent=waited)

    def note(delivery: Delivery, now: datetime) -> None:
        settle(delivery, now)
        stored.set()

    monkeypatch.setattr(sending, "_by_kind", deliver)
    monkeypatch.setattr(sending, "settle", note)
    assert (send_due(timezone.now()), states()) == (2, ["sent", "sent"])


def test_nothing_is_sent_when_its_lease_may_be_over(
    cluster: Lab, hook: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        webhook_of(cluster.user(), hook)
    cancel_job(cluster.submit(), actor=None)
    clock_s, taken_at_s, ages_s, taken = 0.0, 0.0, [], sending.take

    def take_then(now: datetime) -> list[Notification]:
        nonlocal taken_at_s
        taken_at_s = clock_s
        return taken(now)

    def deliver(message: Message) -> Outcome:
        nonlocal clock_s
        clock_s += 59
        ages_s.append(clock_s - taken_at_s)
        return Outcome(sent=True)

    monkeypatch.setattr(sending, "take", take_then)
    monkeypatch.setattr(sending, "_by_kind", deliver)
    monkeypatch.setattr(sending, "TARGETS_AT_ONCE", 1)
    monkeypatch.setattr(sending, "monotonic", lambda: clock_s)
    assert (send_due(timezone.now()), set(states())) == (7, {"sent"})
    assert max(ages_s) < LEASE.total_seconds()


def test_two_senders_do_not_take_the_same_message(cluster: Lab, hook: Received) -> None:
    webhook_of(cluster.user(), hook)
    for _ in range(3):
        cancel_job(cluster.submit(), actor=None)
    now = timezone.now()
    assert (len(take(now)), len(take(now))) == (3, 0)


def test_a_persons_target_is_told_of_their_own_jobs_and_a_teams_of_the_teams(cluster: Lab, hook: Received) -> None:
    ada, bob, root = cluster.user(), cluster.user("bob"), cluster.user("root", "admins", staff=True)
    webhook_of(ada, hook)
    webhook_of(root, hook, team=cluster.team())
    cancel_job(cluster.submit(name="bobs", owner=bob), actor=None)
    assert Notification.objects.count() == 1
    cancel_job(cluster.submit(name="adas", owner=ada), actor=None)
    send_due(timezone.now())
    assert sorted(message["job"]["name"] for message in hook.messages) == ["adas", "adas", "bobs"]


def test_who_left_the_team_is_not_told_of_its_jobs_any_more(cluster: Lab, hook: Received) -> None:
    ada = cluster.user()
    webhook_of(ada, hook)
    job = cluster.submit(owner=ada)
    ada.teams.clear()
    cancel_job(job, actor=None)
    assert not Notification.objects.exists()


def test_mail_goes_through_the_server_of_the_site(cluster: Lab, mailbox: Mailbox) -> None:
    add_target(Kind.MAIL, "ada@example.org", ["job_ended"], team=None, actor=cluster.user())
    cancel_job(cluster.submit(name="net"), actor=None)
    send_due(timezone.now())
    ((recipients, text),) = mailbox.mails
    assert recipients == ["ada@example.org"]
    assert "Subject: Motley: job net of team vision: cancelled" in text
    assert f"Motley-Id: {Notification.objects.get().pk}" in text
    assert states() == ["sent"]


def test_mail_that_its_server_refuses_is_tried_again(cluster: Lab, mailbox: Mailbox) -> None:
    add_target(Kind.MAIL, "ada@example.org", ["job_ended"], team=None, actor=cluster.user())
    cancel_job(cluster.submit(name="net"), actor=None)
    mailbox.refuses = True
    send_due(timezone.now())
    assert (states(), len(mailbox.mails)) == (["pending"], 0)
    mailbox.refuses = False
    send_later()
    assert (states(), len(mailbox.mails)) == (["sent"], 1)


def test_many_ends_are_gathered_in_one_mail_a_minute(cluster: Lab, mailbox: Mailbox) -> None:
    add_target(Kind.MAIL, "ada@example.org", ["job_ended"], team=None, actor=cluster.user())
    cancel_job(cluster.submit(name="first"), actor=None)
    send_due(timezone.now())
    for n in range(25):
        cancel_job(cluster.submit(name=f"net-{n}"), actor=None)
    send_due(timezone.now())
    assert len(mailbox.mails) == 1
    send_due(timezone.now() + GAP)
    _, text = mailbox.mails[1]
    assert len(mailbox.mails) == 2
    assert "Subject: Motley: 25 notifications" in text
    assert "and 5 more" in text.replace("=\r\n", "")


def test_slack_gets_a_message_in_which_no_name_is_a_mention(
    cluster: Lab, hook: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apprise.plugins.slack.NotifySlack.webhook_url", f"http://127.0.0.1:{hook.port}/services")
    address = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    add_target(Kind.SLACK, address, ["job_ended"], team=None, actor=cluster.user())
    cancel_job(cluster.submit(name="net", tags={}), actor=None)
    Notification.objects.update(facts=Notification.objects.get().facts | {"job": {**_facts(), "name": "<!channel>"}})
    send_due(timezone.now())
    assert states() == ["sent"]
    assert b"<!channel>" not in hook.bodies[0]
    assert b"channel" in hook.bodies[0]


def _facts() -> dict[str, object]:
    facts: dict[str, object] = Notification.objects.get().facts["job"]
    return facts
