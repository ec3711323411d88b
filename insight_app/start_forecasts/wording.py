"""Words for the time until an event is expected, from its three quantiles: `in about 4 min (2 to 9 min)`. Pure."""

from datetime import datetime

from insight_app.start_forecasts.showing import Interval
from simulation.results.time_units import format_duration

BEYOND = "more than 3 days"
NOW, NOW_S = "now", 5
"""What is less than so many seconds away is now: a forecast is made less often."""
LATE, LATE_S = "at any time ({} overdue)", 15
"""What should have happened so many seconds ago, by the latest quantile: after `starts`, `done` and `is expected`."""


def format_interval(interval: Interval, now: datetime) -> str:
    """Text of the expected time; equal quantiles are merged, and past ones are written as now."""
    words = _words(interval, now)
    return f"{words}, {interval.note}" if interval.note else words


def _words(interval: Interval, now: datetime) -> str:
    if (late_s := overdue_s(interval, now)) >= LATE_S:
        return LATE.format(_duration(late_s))
    least, median, most = (_from_now(at, now) for at in (interval.low, interval.median, interval.high))
    if interval.median is None:
        return f"in {BEYOND}" if interval.low is None else f"in {BEYOND} ({least} at the earliest)"
    if least == most:
        return NOW if most == NOW else f"in about {most}"
    if median == NOW:
        return f"now or {'in' if most == BEYOND else 'within'} {most}"
    return f"in about {median} ({_without_unit_of(most, least)} to {most})"


def overdue_s(interval: Interval, now: datetime) -> float:
    """Seconds since the latest quantile; 0 where that is to come."""
    return max((now - interval.high).total_seconds(), 0) if interval.high else 0


def _from_now(at: datetime | None, now: datetime) -> str:
    """Time from now; None: beyond the horizon of forecasts."""
    if at is None:
        return BEYOND
    seconds = (at - now).total_seconds()
    if seconds < NOW_S:
        return NOW
    return _duration(seconds)


def _duration(seconds: float) -> str:
    """From a minute on in whole minutes."""
    return format_duration(round(seconds / 60) * 60 if seconds >= 60 else round(seconds))


def _without_unit_of(other: str, text: str) -> str:
    """The duration without its unit where the other has the same one alone: 2 of `2 to 9 min`."""
    value, _, unit = text.partition(" ")
    return value if unit and other.partition(" ")[2] == unit else text
