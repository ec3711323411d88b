"""Time zone of a page: the one that its reader has chosen, else the browser's, else UTC. REST and files stay in UTC."""

import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from jobs_app.models import PersonalSettings

COOKIE = "time_zone"
"""Written by the page's script: the zone of the browser, as the tz database names it."""
QUARTER_S = 900
"""Offsets from UTC change at quarters of an hour."""
UTC_TIMES = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)(?: to (\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?))? UTC")

GetResponse = Callable[[HttpRequest], HttpResponse]


def in_the_readers_zone(get_response: GetResponse) -> GetResponse:
    """Middleware: pages and the administration are written and read in the zone of their reader."""

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.startswith("/api"):
            return get_response(request)
        chosen = _chosen(request)
        request.follows_browser = not chosen and request.method == "GET"  # type: ignore[attr-defined]  # the script reads it
        with timezone.override(
            zone_named(chosen or request.COOKIES.get(COOKIE, "")) or timezone.get_default_timezone()
        ):
            return get_response(request)

    return answer


def _chosen(request: HttpRequest) -> str:
    """The zone that the person has set; empty: that of the browser."""
    if not request.user.is_authenticated:
        return ""
    mine = PersonalSettings.objects.filter(user=request.user)
    try:
        return mine.values_list("time_zone", flat=True).first() or ""
    except DatabaseError:  # the view says so
        return ""


def zone_named(name: str) -> ZoneInfo | None:
    """The zone of the tz database; None if there is none of that name."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):  # not a name; a folder of names; unknown
        return None


def zone_at(at: datetime) -> str:
    """Abbreviation of the page's zone at that time, e.g. CEST; where it has none, its offset: UTC+05:45."""
    local = timezone.localtime(at)
    name = local.tzname() or ""
    return name if name[:1].isalpha() else f"UTC{local.isoformat()[-len('+00:00') :]}"


def moment(at: datetime, *, seconds: bool = False) -> str:
    """Date and time in the page's zone, which is named: 2026-11-28 14:05 CET."""
    local = timezone.localtime(at)
    return f"{local:%F %T} {zone_at(at)}" if seconds else f"{local:%F %H:%M} {zone_at(at)}"


def in_page_zone(text: str) -> str:
    """The sentence with times that are written as `2026-11-28 14:05 UTC` in the page's zone."""
    return UTC_TIMES.sub(_rewritten, text)


def _rewritten(found: re.Match[str]) -> str:
    first, second = (_in_zone(text) if text else "" for text in found.groups())
    if not second:
        return first
    (start, zone), (end, last) = first.rsplit(" ", 1), second.rsplit(" ", 1)
    return f"{start} to {end} {zone}" if zone == last else f"{first} to {second}"


def _in_zone(text: str) -> str:
    try:
        return moment(datetime.fromisoformat(f"{text}+00:00"), seconds=text.count(":") == 2)
    except (ValueError, OverflowError):  # the 31st of February; a day that is beyond the calendar in the page's zone
        return f"{text} UTC"


def axis_time(at: datetime) -> str:
    """Time of a date axis, which Plotly shows as it is written: in the page's zone, without it."""
    return timezone.make_naive(at).isoformat()


def axis_ms(seconds: float) -> int:
    """Milliseconds of a date axis that shows the page's zone, from seconds since the epoch."""
    return round((seconds + _offset_s(timezone.get_current_timezone(), int(seconds) // QUARTER_S)) * 1000)


@lru_cache(maxsize=4096)
def _offset_s(zone: tzinfo, quarter: int) -> float:
    offset = datetime.fromtimestamp(quarter * QUARTER_S, zone).utcoffset()
    return offset.total_seconds() if offset else 0.0


def axis_title() -> str:
    """Title of a time axis: the name of the page's zone."""
    return timezone.get_current_timezone_name()
