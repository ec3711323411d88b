"""The present forecast of one job as its page and REST show it, or why there is none."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from django.conf import settings

from jobs_app.models import Job, Reason
from scheduler_app.models import JobForecast


@dataclass(frozen=True)
class Interval:
    """The moments before which an event comes in 10, 50 and 90 % of the futures; None: beyond three days."""

    low: datetime | None
    median: datetime | None
    high: datetime | None


@dataclass(frozen=True)
class ShownForecast:
    """When a job starts, None if it holds GPUs, and when it ends; its place among the jobs that wait."""

    made_at: datetime
    start: Interval | None
    finish: Interval
    gpu_type: str
    type_part: float
    place: int
    queue: int

    @classmethod
    def of(cls, row: JobForecast, *, waits: bool) -> Self:
        """From the row of a job that waits now, or has started since."""
        start = Interval(row.start_low, row.start_median, row.start_high) if waits else None
        finish = Interval(row.finish_low, row.finish_median, row.finish_high)
        place = row.place if waits else 0
        return cls(row.made_at, start, finish, row.gpu_type, row.type_part, place, row.queue)


def read_forecast(job: Job) -> ShownForecast | None:
    """The present forecast of the job; None: there is none, and `why_none` says why."""
    if job.is_final or job.held:
        return None
    row = JobForecast.objects.filter(pk=job.pk).first()
    waits = job.state == Job.State.QUEUED
    if row is None or (waits and row.runs):  # stopped since: the next run has it in the queue
        return None
    return ShownForecast.of(row, waits=waits)


def why_none(job: Job) -> str:
    """Why there is no forecast of the job."""
    if job.is_final:
        return "The job has ended."
    if job.held:
        return "The job is held: it has no place in the queue."
    if not settings.MOTLEY_FORECASTS:
        return "Forecasts are switched off on this site."
    if job.reason == Reason.DEPENDENCY:
        return "The job waits for other jobs: it has no place in the queue yet."
    return "No forecast has included the job yet: it may be new, or no node in service can run it."
