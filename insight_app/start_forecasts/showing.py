"""The present forecasts of jobs as pages and REST show them, or why there is none."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from insight_app.models import ForecastRun, JobForecast
from jobs_app.models import Job, Reason

SWITCHED_OFF = "Forecasts are switched off on this site."
SHOWN_FOR = timedelta(minutes=30)
"""What is older says little of the queue as it is."""


@dataclass(frozen=True)
class Interval:
    """The moments before which an event comes in 10, 50 and 90 % of the futures; None: beyond three days."""

    low: datetime | None
    median: datetime | None
    high: datetime | None
    late_since: datetime | None = None
    """When the first interval passed that was shown of the event; None: none has."""

    @property
    def note(self) -> str:
        """What is to be said beside the interval, on pages, over REST and by the command."""
        return "later than foreseen" if self.late_since else ""


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
    in_time: float | None = None
    """Probability of being done by its deadline; None: it has none, or one that is new, past or too far ahead."""

    @classmethod
    def of(cls, row: JobForecast, *, waits: bool) -> Self:
        """From the row of a job that waits now, or has started since."""
        start = Interval(row.start_low, row.start_median, row.start_high, row.late_since) if waits else None
        finish = Interval(row.finish_low, row.finish_median, row.finish_high)
        place = row.place if waits else 0
        return cls(row.made_at, start, finish, row.gpu_type, row.type_part, place, row.queue, row.in_time)


def _is_old(row: JobForecast) -> bool:
    return timezone.now() - row.made_at > SHOWN_FOR


def _starts_early(row: JobForecast, *, waits: bool) -> bool:
    """Whether a job holds GPUs before the forecast let it start: its end is then earlier than forecast, too."""
    return not (waits or row.runs) and (row.start_low is None or row.start_low > timezone.now())


def read_forecast(job: Job) -> ShownForecast | None:
    """The present forecast of the job; None: there is none, and `why_none` says why."""
    return read_forecasts([job]).get(job.pk)


def read_forecasts(jobs: Iterable[Job]) -> dict[UUID, ShownForecast]:
    """The present forecasts of those jobs that have one, in one query."""
    able = {job.pk: job for job in jobs if settings.MOTLEY_FORECASTS and not (job.is_final or job.held)}
    rows = JobForecast.objects.in_bulk(able) if able else {}
    found = {pk: _shown(able[pk], row) for pk, row in rows.items()}
    return {pk: forecast for pk, forecast in found.items() if forecast is not None}


def _shown(job: Job, row: JobForecast) -> ShownForecast | None:
    waits = job.state == Job.State.QUEUED
    if _why_outdated(row, waits=waits):
        return None
    found = ShownForecast.of(row, waits=waits)
    return found if row.deadline == job.deadline else replace(found, in_time=None)


def why_none(job: Job) -> str:
    """Why there is no forecast of the job."""
    if job.is_final:
        return "The job has ended."
    if job.held:
        return "The job is held: it has no place in the queue."
    if not settings.MOTLEY_FORECASTS:
        return SWITCHED_OFF
    return _why_not_now(job)


def _why_outdated(row: JobForecast, *, waits: bool) -> str:
    """Why the last forecast of a job is outdated; empty if it is not."""
    if _is_old(row):
        return f"The last forecast of the job is older than {SHOWN_FOR.seconds // 60} min: no run has ended since."
    if waits and row.runs:
        return "The job was stopped after the last forecast: the next one has it in the queue."
    if _starts_early(row, waits=waits):
        return "The job has started earlier than forecast: the next forecast tells when it ends."
    return ""


def _why_not_now(job: Job) -> str:
    """Why the last runs did not forecast a job that waits or runs."""
    row = JobForecast.objects.filter(pk=job.pk).first()
    if row is not None and (outdated := _why_outdated(row, waits=job.state == Job.State.QUEUED)):
        return outdated
    if job.reason == Reason.BUDGET:
        return "The job waits for the budget of its team, which is reset in more than three days or just used up."
    if job.reason == Reason.DEPENDENCY:
        return "The job waits for other jobs, of which one has no forecast, or the job is new."
    if job.reason == Reason.ARRAY_LIMIT:
        return "Its array's limit of tasks at a time is reached, and no forecast has included the job yet."
    run = ForecastRun.objects.exclude(finished_at=None).first()
    if run is not None and run.left_out:
        return f"Only the {run.jobs:,} jobs at the front of the queue are forecast; {run.left_out:,} wait behind them."
    return "None has included the job yet: it may be new, or no node in service can run it."
