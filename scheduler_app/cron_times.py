"""Times of a cron expression in a time zone."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

HOW_TO_WRITE = "Write minute, hour, day, month and weekday, as 0 2 * * 0 for each Sunday at 02:00."


def cron_times(cron: str, zone: str, after: datetime) -> Iterator[datetime]:
    """Times in UTC later than `after`, in order; raises `CronSimError` if the expression is not valid.

    A time of day that a change of the clocks skips comes right after the change, and one that it repeats comes once;
    with `*` as the hour it comes each hour that passes.
    """
    last = after
    for local in CronSim(_by_the_clock(cron), after.astimezone(ZoneInfo(zone))):
        at = local.astimezone(UTC)
        if at > last:  # a start within the repeated hour finds times of its first pass again
            yield (last := at)


def latest_cron_time(cron: str, zone: str, until: datetime) -> datetime | None:
    """The last time in UTC at or before `until`; None if there is none within fifty years."""
    local = until.astimezone(ZoneInfo(zone))
    found = (at.astimezone(UTC) for at in CronSim(_by_the_clock(cron), local, reverse=True))
    return next((at for at in found if at <= until), None)


def _by_the_clock(cron: str) -> str:
    """The same expression with ranges for `*`, unless that is its hour.

    As Debian's cron, cronsim moves a skipped time and drops a repeated one only where minute and hour have no `*`.
    """
    fields = cron.split()
    if len(fields) != 5 or fields[1] in ("*", "*/1"):
        return cron
    minute, hour, *rest = fields
    return " ".join([re.sub(r"^\*", "0-59", minute), re.sub(r"^\*", "0-23", hour), *rest])
