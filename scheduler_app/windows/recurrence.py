"""Occurrences of a window: the first by its two times, the others by a cron expression, equally long."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import NamedTuple

from cronsim import CronSimError

from scheduler_app.cron_times import HOW_TO_WRITE, cron_times

CHECKED = 50
"""Occurrences of which two may not overlap."""
LEAST_INTERVAL = timedelta(hours=1)
"""Between the begins of two: each costs the jobs there their last minutes, a checkpoint and a restart."""


class Occurrence(NamedTuple):
    begins_at: datetime
    ends_at: datetime


class Recurrence(NamedTuple):
    """Recurrence of a window: its first time, then `cron` in its zone, before `until`; once without cron."""

    first: Occurrence
    cron: str = ""
    zone: str = "UTC"
    until: datetime | None = None

    @property
    def length(self) -> timedelta:
        return self.first.ends_at - self.first.begins_at

    def occurrences(self, now: datetime) -> Iterator[Occurrence]:
        """Occurrences that end after `now`, in order."""
        if self.first.ends_at > now:
            yield self.first
        if not self.cron:
            return
        since = max(self.first.begins_at, now - self.length)
        for begins_at in cron_times(self.cron, self.zone, since):
            if self.until is not None and begins_at >= self.until:
                return
            yield Occurrence(begins_at, begins_at + self.length)


def fault_of_cron(recurrence: Recurrence) -> str:
    """Fault of the cron expression, with what to write instead; empty if it is valid."""
    try:
        found = list(islice(recurrence.occurrences(recurrence.first.begins_at), CHECKED))
    except CronSimError as error:
        return f"{error}. {HOW_TO_WRITE}"
    if len(found) < 2:
        return "It never begins again by this: leave cron empty, or give other times or a later repeats_until."
    if any(after.begins_at < before.begins_at + LEAST_INTERVAL for before, after in pairwise(found[1:])):
        return "It would begin too often: give times at least one hour apart, as 0 * * * * for each hour."
    if any(after.begins_at < before.ends_at for before, after in pairwise(found)):
        return "It would begin again before it has ended: give a shorter window, or times that are farther apart."
    return ""
