"""Parsing of begin times and deadlines in the forms of Slurm's `--begin`, with the offset of this machine's zone."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from motley_client.spec import SpecError
from motley_command.units import seconds_per

DAYS_FROM_TODAY = {"yesterday": -1, "today": 0, "tomorrow": 1}
NAMED = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}
FORMS = "now+1hour, 16:00, tomorrow or 2026-12-01T08:00"
"""Named in messages; units of `now+` are seconds, minutes, hours, days and weeks."""


def begin_time_of(text: str | None, now: datetime, option: str = "--begin") -> str | None:
    """The time in ISO 8601, as `time_of` parses it; None means at once."""
    return None if text is None or text == "now" else time_of(text, now, option)


def deadline_of(text: str | None, now: datetime) -> str | None:
    """The time in ISO 8601, as `time_of` parses it."""
    return None if text is None else time_of(text, now, "--deadline")


SINCE = "2h, yesterday, 2026-12-01 or 2026-12-01T12:00:00Z"
"""Examples of values of `--since`, for its help and its error message."""


def since_of(text: str | None, now: datetime) -> str | None:
    """The past time in ISO 8601: `2h` ago, `now-2hours`, `today`, `yesterday`, the last `08:00`, a date or a time."""
    if text is None:
        return None
    now = now.astimezone()
    try:
        at = _before_now(text, now) or _of_past_day(NAMED.get(text, text), now) or _of_date(text, now)
    except (ValueError, OverflowError) as error:
        raise SpecError(f"--since {text}: there is no such time. Write {SINCE}.") from error
    return at.isoformat()


def _before_now(text: str, now: datetime) -> datetime | None:
    ago = re.fullmatch(r"(now\s*-\s*)?(\d{1,9})\s*([a-z]*)", text)
    if ago is None or not (ago[1] or ago[3]):
        return None
    if (seconds := seconds_per(ago[3] or "s")) is None:
        raise ValueError(text)
    return now - timedelta(seconds=int(ago[2]) * seconds)


def _of_past_day(text: str, now: datetime) -> datetime | None:
    """`08:00`: the last time that the clock showed it."""
    at = _of_day(text, now)
    return at if at is None or at <= now else _local(at - timedelta(days=1))


def times_in_words(spec: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The spec of a file, with `begin_time` and `deadline` such as `tomorrow` as options take them, in ISO 8601.

    What this machine cannot read is left for the service to refuse.
    """
    found = dict(spec)
    for field in ("begin_time", "deadline"):
        with suppress(SpecError):
            found |= {field: time_of(spec[field], now, field)} if isinstance(spec.get(field), str) else {}
    return found


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
    if (seconds := seconds_per(later[2] or "s")) is None:
        raise ValueError(text)
    return now + timedelta(seconds=int(later[1]) * seconds)


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
    """`today`, `yesterday`, `tomorrow`, `2026-12-01`, `2026-12-01T08:00`, with or without an offset."""
    if text in DAYS_FROM_TODAY:
        day = now + timedelta(days=DAYS_FROM_TODAY[text])
        return _local(day.replace(hour=0, minute=0, second=0, microsecond=0))
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else _local(at)


def _local(at: datetime) -> datetime:
    """The same clock time with the offset of this machine's zone on that day: it changes with daylight saving."""
    return at.replace(tzinfo=None).astimezone()
