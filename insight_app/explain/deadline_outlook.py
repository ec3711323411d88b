"""Deadline outlook of a job: the probability that it is done in time, from its forecast."""

from dataclasses import dataclass
from datetime import datetime

from insight_app.start_forecasts.showing import read_forecast
from jobs_app.models import Job


@dataclass(frozen=True)
class DeadlineOutlook:
    """A job's deadline, the probability that it is done by then, and when the forecast was made."""

    deadline: datetime
    in_time: float
    made_at: datetime


def deadline_outlook(job: Job) -> DeadlineOutlook | None:
    """Outlook of a job; None: it has no deadline, or no forecast that tells of it."""
    found = read_forecast(job) if job.deadline else None
    if job.deadline is None or found is None or found.in_time is None:
        return None
    return DeadlineOutlook(job.deadline, found.in_time, found.made_at)
