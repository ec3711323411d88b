"""Notifications of jobs that wait longer than the 90 % quantile of the forecast made at their submission."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from insight_app.models import KeptForecast
from jobs_app.models import Job, Notification, NotificationTarget
from jobs_app.notifications.outbox import Announcement, facts_of, read_jobs, write
from jobs_app.notifications.recipients import Recipients, read_recipients

Event = NotificationTarget.Event
MOST = 500
"""Jobs that are announced at a time: the others come a minute later."""


def announce_late_starts(now: datetime) -> None:
    """Write a notification of each late job, once; later calls find only jobs that have become late since."""
    users, teams = _who_asks()
    if users or teams:
        late = _late(users, teams, now)
        recipients = read_recipients(late)
        write(
            of_late_start(target, job, late[job.pk]) for job in read_jobs(late) for target in _asking(recipients, job)
        )


def of_late_start(target: NotificationTarget, job: Job, expected_by: datetime) -> Announcement:
    return Announcement(target.pk, Event.JOB_WAITS, _key(job.pk), facts_of(job) | {"expected_by": _minute(expected_by)})


def _asking(recipients: Recipients, job: Job) -> list[NotificationTarget]:
    return [target for target in recipients.of(job) if Event.JOB_WAITS in target.events]


def _who_asks() -> tuple[set[int], set[int]]:
    """Users and teams with a target that subscribes to late starts."""
    rows = NotificationTarget.objects.values_list("user", "team", "events")
    asking = [(user, team) for user, team, events in rows if Event.JOB_WAITS in events]
    return {user for user, _ in asking if user}, {team for _, team in asking if team}


def _late(users: Collection[int], teams: Collection[int], now: datetime) -> dict[UUID, datetime]:
    """Queued jobs of these users and teams that have not started by then, without a notification so far."""
    waiting = Job.objects.queued().filter(Q(owner__in=users) | Q(team__in=teams), started_at=None, held=False)
    first = KeptForecast.objects.filter(
        job__in=waiting.values("pk"),
        event=KeptForecast.Event.START,
        occasion=KeptForecast.Occasion.SUBMISSION,
        happened_at=None,
        shown_high_s__isnull=False,
    )
    rows = first.values_list("job", "made_at", "shown_high_s")
    until = {job: made_at + timedelta(seconds=high_s or 0.0) for job, made_at, high_s in rows}
    late = sorted((at, job) for job, at in until.items() if at < now)
    told = _told([job for _, job in late])
    return {job: at for at, job in [one for one in late if _key(one[1]) not in told][:MOST]}


def _told(jobs: Sequence[UUID]) -> set[str]:
    """Keys of the jobs that have a notification already."""
    found: set[str] = set()
    for first in range(0, len(jobs), MOST):
        keys = [_key(job) for job in jobs[first : first + MOST]]
        rows = Notification.objects.filter(event=Event.JOB_WAITS, key__in=keys)
        found |= set(rows.values_list("key", flat=True))
    return found


def _key(job: UUID) -> str:
    return f"waits:{job}"


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
