"""Outbox: notifications are written in the transaction of their event, for the targets that subscribe to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from database.bulk_insert import insert_many
from jobs_app.models import Job, Notification, NotificationTarget
from jobs_app.notifications.recipients import read_recipients

Event = NotificationTarget.Event
FAILED = (Job.State.FAILED, Job.State.TIMED_OUT)
OF_JOB = (
    *("pk", "name", "array_index", "state", "reason", "message", "exit_code", "failures", "retries"),
    *("attained_gpu_s", "created_at", "started_at", "finished_at"),
    *("team__id", "team__name", "owner__id", "owner__username", "owner__is_staff"),
)
KEYS_AT_ONCE = 500


class Announcement(NamedTuple):
    """One event for one target."""

    target: int
    event: Event
    key: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a delivery, the same for every kind of target; `error` is in words without secrets."""

    sent: bool
    error: str = ""
    final: bool = False
    """Another try would end alike."""


def announce_ends(ended: Iterable[UUID]) -> None:
    """Write the notifications of jobs that have ended; call it in the transaction in which they end."""
    jobs = list(ended)
    if jobs and (recipients := read_recipients(jobs)).targets:
        write(of_end(target, job) for job in read_jobs(jobs) for target in recipients.of(job))


def read_jobs(jobs: Iterable[UUID]) -> list[Job]:
    """The jobs with the columns that messages name."""
    return list(Job.objects.filter(pk__in=list(jobs)).select_related("team", "owner").only(*OF_JOB).order_by("pk"))


def write(announcements: Iterable[Announcement | None]) -> None:
    """Insert announcements that their targets have not had before."""
    wanted = {(one.target, one.key): one for one in announcements if one is not None}
    for key in _known(wanted):
        wanted.pop(key, None)
    rows = [
        {"target_id": one.target, "event": one.event, "key": one.key, "facts": dict(one.facts)}
        for one in wanted.values()
    ]
    insert_many(Notification, rows)


def _known(wanted: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    pairs = list(wanted)
    found: list[tuple[int, str]] = []
    for first in range(0, len(pairs), KEYS_AT_ONCE):
        some = pairs[first : first + KEYS_AT_ONCE]
        rows = Notification.objects.filter(target__in={pk for pk, _ in some}, key__in={key for _, key in some})
        found += rows.values_list("target", "key")
    return found


# -- decide: pure --------------------------------------------------------------------------------------------------


def of_end(target: NotificationTarget, job: Job) -> Announcement | None:
    """Announcement of the job's end: the first of its events that the target subscribes to; None if there is none."""
    event = next((event for event in events_of_end(job) if event in target.events), None)
    return Announcement(target.pk, event, f"end:{job.pk}", facts_of(job)) if event else None


def events_of_end(job: Job) -> list[Event]:
    """Events of the job's end, the most specific first."""
    used_up = job.state == Job.State.FAILED and 0 < job.retries < job.failures
    failed = job.state in FAILED
    return [*([Event.RETRIES_USED] if used_up else []), *([Event.JOB_FAILED] if failed else []), Event.JOB_ENDED]


def facts_of(job: Job) -> dict[str, Any]:
    """Facts about a job in messages, as in the JSON of a webhook."""
    times = {name: getattr(job, name) for name in ("created_at", "started_at", "finished_at")}
    return {
        "job": {
            "id": str(job.pk),
            "name": str(job),
            "team": job.team.name,
            "owner": job.owner.username,
            "state": job.state,
            "reason": job.reason,
            "message": job.message,
            "exit_code": job.exit_code,
            "retries": job.retries,
            "gpu_hours": round(job.attained_gpu_s / 3600, 3),
            **{name: at.isoformat() if at else None for name, at in times.items()},
            "url": f"{settings.PUBLIC_URL}/jobs/{job.pk}",
        }
    }
