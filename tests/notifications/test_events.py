"""What is announced: retries that are used up, nodes that are lost, late starts, teams whose jobs fail."""

from collections.abc import Collection
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cluster_app.models import Engine, Node
from insight_app.late_start_notifications import announce_late_starts
from insight_app.models import KeptForecast
from jobs_app.failure_notifications import announce_failed_shares
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Job, Notification, NotificationTarget, Team
from jobs_app.notifications.outbox import announce_ends, events_of_end
from jobs_app.notifications.targets import add_target
from jobs_app.notifications.texts import sentence_of
from operations.notifying import Sender
from operations.retention import delete_expired
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lost_node_notifications import announce_lost_nodes
from scheduler_app.round.reconcile import observe
from tests.service_lab import Lab

Kind = NotificationTarget.Kind


def told(actor: User, events: Collection[str], *, team: Team | None = None) -> NotificationTarget:
    return add_target(Kind.WEBHOOK, "https://example.org/", events, team=team, actor=actor).target


def sentences() -> list[str]:
    return sorted(sentence_of(one) for one in Notification.objects.all())


@pytest.mark.parametrize(
    ("state", "retries", "failures", "events"),
    [
        ("succeeded", 1, 1, ["job_ended"]),
        ("cancelled", 0, 0, ["job_ended"]),
        ("failed", 0, 1, ["job_failed", "job_ended"]),
        ("timed_out", 2, 1, ["job_failed", "job_ended"]),
        ("failed", 2, 3, ["retries_used", "job_failed", "job_ended"]),
    ],
)
def test_an_end_is_told_by_its_most_particular_event(
    state: str, retries: int, failures: int, events: list[str]
) -> None:
    assert events_of_end(Job(state=state, retries=retries, failures=failures)) == events


def test_an_end_without_targets_costs_one_query_and_with_some_it_does_not_grow_with_jobs(cluster: Lab) -> None:
    jobs = [cluster.submit().pk for _ in range(6)]
    with CaptureQueriesContext(connection) as without:
        announce_ends(jobs)
    told(cluster.user(), ["job_ended"])
    with CaptureQueriesContext(connection) as one:
        announce_ends(jobs[:1])
    with CaptureQueriesContext(connection) as five:
        announce_ends(jobs[1:])
    assert (len(without), len(five)) == (1, len(one))
    assert Notification.objects.count() == 6


def test_a_lost_node_is_told_to_those_with_jobs_there_and_to_administrators(cluster: Lab) -> None:
    ada, eve, root = cluster.user(), cluster.user("eve", "language"), cluster.user("root", "admins", staff=True)
    for actor in (ada, eve, root):
        told(actor, ["node_lost"])
    cluster.recorded_as_running(cluster.submit(owner=ada))
    announce_lost_nodes(["n1"], cluster.now)
    told_to = Notification.objects.values_list("target__user__username", flat=True)
    assert sorted(told_to) == ["ada", "root"]
    assert sentences() == ["node n1 is lost; 1 job was there"] * 2


def test_the_silence_of_a_node_is_announced_by_the_loop_that_finds_it(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(cluster.user("root", "admins", staff=True), ["node_lost"])
    cluster.tick()
    monkeypatch.setattr("scheduler_app.round.reconcile.hear_engines", lambda *_: {})
    fence, before = cluster.fence, cluster.now - timedelta(hours=1)
    Node.objects.update(heard_at=before)
    Engine.objects.update(since=before)
    SchedulerLease.objects.update(listening_since=before)
    observe(fence, cluster.now)
    assert Node.objects.get().health == Node.Health.LOST
    assert sentences() == ["node n1 is lost; 0 jobs were there"]


def test_a_job_that_waits_past_the_90_percent_of_its_first_forecast_is_told_once(cluster: Lab) -> None:
    ada = cluster.user()
    told(ada, ["job_waits"])
    now = timezone.now()
    late, early = cluster.submit(name="late"), cluster.submit(name="early")
    for job, high_s in ((late, 60.0), (early, 600.0)):
        KeptForecast.objects.create(
            job=job.pk,
            team=job.team,
            event="start",
            occasion="submission",
            made_at=now - timedelta(minutes=5),
            known_length=True,
            shown_high_s=high_s,
        )
    for _ in range(2):
        announce_late_starts(now)
    assert sentences() == ["job late of team vision waits longer than forecast"]
    Job.objects.filter(pk=early.pk).update(held=True)
    announce_late_starts(now + timedelta(hours=1))
    assert Notification.objects.count() == 1


def test_a_team_is_told_once_a_day_that_many_of_its_jobs_fail(cluster: Lab) -> None:
    root = cluster.user("root", "admins", staff=True)
    told(root, ["failed_share"], team=cluster.team())
    jobs, now = [cluster.submit() for _ in range(10)], timezone.now()
    Job.objects.filter(pk__in=[job.pk for job in jobs[:4]]).update(state="failed", finished_at=now)
    Job.objects.filter(pk__in=[job.pk for job in jobs[4:]]).update(state="succeeded", finished_at=now)
    announce_failed_shares(now)
    assert sentences() == []
    Job.objects.filter(pk=jobs[5].pk).update(state="timed_out")
    announce_failed_shares(now)
    announce_failed_shares(now)
    assert sentences() == ["team vision: 5 of the 10 jobs that ended within 24 hours failed (50%)"]


def test_old_notifications_are_deleted(cluster: Lab) -> None:
    told(cluster.user(), ["job_ended"])
    cancel_job(cluster.submit(), actor=None)
    delete_expired(timezone.now() + timedelta(days=29))
    assert Notification.objects.count() == 1
    delete_expired(timezone.now() + timedelta(days=31))
    assert Notification.objects.count() == 0


def test_the_sender_starts_no_thread_while_one_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Thread:
        def __init__(self, **options: object) -> None:
            started.append(options["name"])

        def start(self) -> None:
            pass

        def is_alive(self) -> bool:
            return True

    monkeypatch.setattr("operations.notifying.threading.Thread", Thread)
    sender = Sender()
    sender.work(timezone.now())
    sender.work(timezone.now())
    assert started == ["notifications"]
