"""Due times of a recurring job's schedule."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import NamedTuple

from cronsim import CronSimError
from django.conf import settings

from jobs_app.models import RecurringJob
from scheduler_app.cron_times import HOW_TO_WRITE, cron_times, latest_cron_time
from web.rest.errors import Fault

CHECKED = 60
"""Due times of which no two may be closer than the shortest interval."""
MOST_COUNTED = 1_000
"""Due times that were missed."""
LATE = timedelta(minutes=5)
"""A due time that is found later was missed: neither a long turn nor a restart of the service takes so long."""


class DueTimes(NamedTuple):
    """Due times that have come since the last turn: the latest counts, the others were missed."""

    latest: datetime
    before: int
    """How many came before the latest, `MOST_COUNTED` at most."""
    next_at: datetime | None

    def is_missed(self, now: datetime) -> bool:
        return now - self.latest > LATE

    @property
    def before_text(self) -> str:
        more = "more than " * (self.before >= MOST_COUNTED)
        return f"{more}{self.before:,} due time{'s' * (self.before != 1)} before" if self.before else ""


def next_due_at(schedule: str, zone: str, after: datetime) -> datetime | None:
    """The next due time; None if there is none within fifty years."""
    return next(cron_times(schedule, zone, after), None)


def due_times(recurring: RecurringJob, first: datetime, now: datetime) -> DueTimes:
    """The due times from `first`, its next one, until now."""
    later = cron_times(recurring.schedule, recurring.zone, first)
    counted = list(islice(_until(later, now), MOST_COUNTED))
    latest = counted[-1] if counted else first
    if len(counted) == MOST_COUNTED:
        latest = max(latest, latest_cron_time(recurring.schedule, recurring.zone, now) or latest)
    return DueTimes(latest, len(counted), next_due_at(recurring.schedule, recurring.zone, max(latest, now)))


def schedule_faults(schedule: str, zone: str, now: datetime) -> Iterator[Fault]:
    """Faults of a schedule, with what to write instead."""
    if len(schedule.split()) != 5:
        yield _fault(f"These are not five fields. {HOW_TO_WRITE}")
        return
    try:
        found = list(islice(cron_times(schedule, zone, now), CHECKED))
    except CronSimError as error:
        yield _fault(f"{error}. {HOW_TO_WRITE}")
        return
    least = settings.MOTLEY_RECURRING_INTERVAL
    if not found:
        yield _fault("There is no such day within fifty years.")
    elif any(after - before < least for before, after in pairwise(found)):
        minutes = least / timedelta(minutes=1)
        yield _fault(f"Due times must be at least {minutes:g} minutes apart: give fewer, as 0 * * * * for each hour.")


def _until(times: Iterator[datetime], now: datetime) -> Iterator[datetime]:
    for at in times:
        if at > now:
            return
        yield at


def _fault(detail: str) -> Fault:
    return Fault(pointer="/schedule", code="schedule", detail=detail)
