"""Parsing of begin times and deadlines in the forms of Slurm's `--begin`, with the offset of this machine's zone."""

import re
from datetime import datetime, timedelta

from motley_client.spec import SpecError

SECONDS_PER = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
NAMED = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}
FORMS = "now+1hour, 16:00, tomorrow or 2026-12-01T08:00"
"""Named in messages; units of `now+` are seconds, minutes, hours, days and weeks."""


def begin_time_of(text: str | None, now: datetime, option: str = "--begin") -> str | None:
    """The time in ISO 8601, as `time_of` parses it; None means at once."""
    return None if text is None or text == "now" else time_of(text, now, option)


def deadline_of(text: str | None, now: datetime) -> str | None:
    """The time in ISO 8601, as `time_of` parses it."""
    return None if text is None else time_of(text, now, "--deadline")


def time_of(text: str, now: datetime, option: str) -> str:
    """The time in ISO 8601 with its offset. A time of day that has passed today is that of tomorrow."""
    now = now.astimezone()
    try:
        at = _after_now(text, now) or _of_day(NAMED.get(text, text), now) or _of_date(text, now)
    except (ValueError, OverflowError) as error:
        raise SpecError(f"{option} {text}: there is no such time. Write {FORMS}.") from error
    return at.isoformat(timespec="seconds")


def _after_now(text: str, now: datetime) -> datetime | None:
    """`now`, `now+90` (seconds), `now+1hour`, `now+2days`."""
    if text == "now":
        return now
    later = re.fullmatch(r"now\s*\+\s*(\d{1,9})\s*([a-z]*)", text)
    if later is None:
        return None
    unit = later[2].removesuffix("s") or "second"
    if unit not in SECONDS_PER:
        raise ValueError(text)
    return now + timedelta(seconds=int(later[1]) * SECONDS_PER[unit])


def _of_day(text: str, now: datetime) -> datetime | None:
    """`16:00`, `16:00:30`, `4:00pm`: the next time that the clock shows it."""
    of_day = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*([ap]m)?", text.lower())
    if of_day is None:
        return None
    hour, minute, second = int(of_day[1]), int(of_day[2]), int(of_day[3] or 0)
    if of_day[4]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + 12 * (of_day[4] == "pm")
    at = _local(now.replace(hour=hour, minute=minute, second=second, microsecond=0))
    return at if at > now else _local(at + timedelta(days=1))


def _of_date(text: str, now: datetime) -> datetime:
    """`tomorrow`, `2026-12-01`, `2026-12-01T08:00`, with or without an offset."""
    if text == "tomorrow":
        return _local((now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0))
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else _local(at)


def _local(at: datetime) -> datetime:
    """The same clock time with the offset of this machine's zone on that day: it changes with daylight saving."""
    return at.replace(tzinfo=None).astimezone()
