"""Idle GPUs of running jobs: below 5 % utilization in each of the last ten minutes; warnings of owners."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Max

from accounting_app.gpu_watch.minutes import minute_of
from accounting_app.models import GpuMinute
from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from jobs_app.models import Attempt, Job, JobEvent

WINDOW = timedelta(minutes=10)
IDLE_BELOW = 5.0
"""Per cent of the time in which a kernel ran, as the mean of a minute."""
LEAST_MINUTES = 9
"""Of the window that have readings: one may be missing, as after a restart of the service."""


@dataclass(frozen=True)
class AttemptUse:
    """A running attempt with the stored number of its idle GPUs."""

    pk: int
    job: UUID
    number: int
    gpus: int
    idle_gpus: int
    idle_since: datetime | None


@dataclass(frozen=True)
class IdleChange:
    """New columns of an attempt, and the warning of its owner; empty if there is none."""

    idle_gpus: int
    idle_since: datetime | None
    warning: str


def note_idle_gpus(now: datetime) -> None:
    """Store how many GPUs of each running attempt are idle, and warn owners; once a minute.

    In a transaction that has written no attempt yet: it locks the jobs that get an event.
    """
    since = minute_of(now) - WINDOW
    idle = _idle_gpus(since, minute_of(now))
    attempts = _attempts(idle)
    changes = {one: change for one in attempts if (change := idle_change(one, idle.get(one.pk, 0), since))}
    warned = {one: change.warning for one, change in changes.items() if change.warning}
    _lock_jobs({one.job for one in warned})
    rewrite(Attempt, ("idle_gpus", "idle_since"), {one.pk: (c.idle_gpus, c.idle_since) for one, c in changes.items()})
    insert_many(
        JobEvent,
        [
            {"job_id": one.job, "kind": JobEvent.Kind.WARNING, "attempt": one.number, "message": warning}
            for one, warning in warned.items()
        ],
    )


def _lock_jobs(jobs: Collection[UUID]) -> None:
    """Jobs before attempts, as everywhere: the insertion of an event would lock its job too late."""
    if jobs:
        list(Job.objects.select_for_update().filter(pk__in=jobs).order_by("pk").values_list("pk"))


def idle_change(attempt: AttemptUse, idle: int, since: datetime) -> IdleChange | None:
    """Change of the attempt with so many GPUs idle since then; None if there is none.

    The owner is warned when GPUs become idle, and again when all of them are.
    """
    if idle == attempt.idle_gpus:
        return None
    if not idle:
        return IdleChange(0, None, "")
    is_news = not attempt.idle_gpus or idle == attempt.gpus
    return IdleChange(idle, since, in_words(idle, attempt.gpus) if is_news else "")


def in_words(idle: int, gpus: int) -> str:
    """`3 of its 8 GPUs have been below 5 % utilization for 10 minutes`."""
    which = "its GPU has" if gpus == 1 else f"all of its {gpus} GPUs have" if idle == gpus else ""
    some = f"{idle} of its {gpus} GPUs {'has' if idle == 1 else 'have'}"
    return f"{which or some} been below {IDLE_BELOW:g} % utilization for {WINDOW // timedelta(minutes=1)} minutes"


def _idle_gpus(since: datetime, until: datetime) -> dict[int, int]:
    """Running attempt → how many of its GPUs were idle in each minute of the window, if there are any."""
    minutes = GpuMinute.objects.filter(minute__gte=since, minute__lt=until)
    running = minutes.filter(attempt__state=Attempt.State.RUNNING, attempt__started_at__lte=since)
    of_gpus = running.values_list("attempt", "gpu").annotate(most=Max("utilization"), known=Count("utilization"))
    found: dict[int, int] = {}
    for attempt, *_ in of_gpus.filter(most__lt=IDLE_BELOW, known__gte=LEAST_MINUTES).order_by():
        found[attempt] = found.get(attempt, 0) + 1
    return found


def _attempts(idle: Mapping[int, int]) -> list[AttemptUse]:
    """The running attempts that have idle GPUs now, or had some at the last check."""
    live = Attempt.objects.live().filter(state=Attempt.State.RUNNING)
    rows = live.filter(pk__in=list(idle)) | live.filter(idle_gpus__gt=0)
    columns = ("pk", "job", "number", "gpu_count", "idle_gpus", "idle_since")
    return [AttemptUse(*row) for row in rows.order_by("pk").values_list(*columns)]
