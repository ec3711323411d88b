"""Template filters that format numbers, times and sizes."""

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any
from uuid import UUID

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from allocation.policies.parameters import Parameter
from insight_app.explain.array_progress import array_summary, gpu_time
from insight_app.gpu_prices.wording import format_hours
from insight_app.models import PolicyGuard
from insight_app.policy_effects.guard import amount
from insight_app.start_forecasts.showing import Interval, ShownForecast
from insight_app.start_forecasts.wording import BEYOND, LATE_S, format_interval, overdue_s
from jobs_app.models import Attempt, Job
from scheduler_app.policy.catalogue import kind_of
from simulation.results.time_units import format_duration
from web.pages.time_zones import in_page_zone, moment, zone_at

register = template.Library()
register.filter(array_summary)
register.filter(gpu_time)
register.filter("hours", format_hours)
register.filter(in_page_zone)

LEAST_PERCENT, MANIFOLD = 1e-5, 2.0
NOTHING = "\N{EN DASH}"
MIB_PER_GIB = 1024
LEAST_PLAIN, MOST_PLAIN, LEAST_WHOLE_MS = 0.001, 1e6, 0.01


@register.filter
def duration(seconds: float | None) -> str:
    """Duration in its two largest units, e.g. 3 min 12 s."""
    return NOTHING if seconds is None else format_duration(seconds)


@register.filter
def duration_since(start: datetime | None) -> str:
    return duration((timezone.now() - start).total_seconds()) if start else NOTHING


@register.filter
def held_s(attempt: Attempt) -> float | None:
    """Seconds from the claim to the end of an attempt; None before its end."""
    return (attempt.ended_at - attempt.claimed_at).total_seconds() if attempt.ended_at else None


@register.filter
def ago(at: datetime | None) -> SafeString | str:
    """Relative time, e.g. 12 s ago; the exact time on hover."""
    if at is None:
        return NOTHING
    seconds = (timezone.now() - at).total_seconds()
    words = f"{_largest(abs(seconds))} ago" if seconds >= 0 else f"in {_largest(abs(seconds))}"
    return _time(at, words)


@register.filter
def coming(interval: Interval) -> SafeString | str:
    """When an event is expected, e.g. in about 4 min (2 to 9 min); the median's time on hover."""
    words = format_interval(interval, timezone.now())
    return words if interval.median is None else _time(interval.median, words)


@register.filter
def by_clock(interval: Interval) -> SafeString | str:
    """Times at which an event is expected, e.g. at 15:40 (15:10 to 16:30) CET."""
    if interval.median is None or overdue_s(interval, timezone.now()) >= LATE_S:
        return coming(interval)
    least, median, most = (_clock_time(at) for at in (interval.low, interval.median, interval.high))
    zone = zone_at(interval.median)
    if _clock_words(interval.low) == _clock_words(interval.high):
        return format_html("at about {} {}", median, zone)
    return format_html("at {} ({} to {}) {}", median, least, most, zone)


@register.filter
def clock_time(at: datetime) -> SafeString:
    """Hour and minute, with the day where it is not today, and the zone."""
    return format_html("{} {}", _clock_time(at), zone_at(at))


def _clock_time(at: datetime | None) -> SafeString | str:
    if at is None:
        return BEYOND
    return _time(at, _clock_words(at))


def _clock_words(at: datetime | None) -> str:
    """Hour and minute, with the day where it is not today."""
    if at is None:
        return BEYOND
    local = timezone.localtime(at)
    return f"{local:%H:%M}" if local.date() == timezone.localdate() else f"{local:%a %H:%M}"


@register.filter
def of_job(forecasts: Mapping[UUID, ShownForecast], job: Job) -> ShownForecast | None:
    """The forecast of the job, if it has one."""
    return forecasts.get(job.pk)


@register.filter
def made_at(forecasts: Mapping[UUID, ShownForecast]) -> datetime | None:
    """When the oldest of the forecasts was made."""
    return min((forecast.made_at for forecast in forecasts.values()), default=None)


@register.filter
def clock(at: datetime | None) -> SafeString | str:
    """Time of day in the page's zone."""
    return NOTHING if at is None else _time(at, f"{timezone.localtime(at):%T}")


@register.filter
def minute(at: datetime | None) -> SafeString | str:
    """Date and time in the page's zone, which is named: 2026-11-28 14:05 CET."""
    return NOTHING if at is None else _time(at, moment(at))


def _time(at: datetime, words: str) -> SafeString:
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), moment(at, seconds=True), words)


def _largest(seconds: float) -> str:
    return " ".join(duration(seconds).split(" ")[:2])


@register.filter
def kilowatt(watts: float) -> str:
    """Power in kW, with a digit after the point."""
    return f"{watts / 1000:,.1f} kW"


@register.filter
def energy(joules: float) -> str:
    """Energy in Wh, or in kWh from a thousand on."""
    watt_hours = joules / 3600
    return f"{watt_hours / 1000:,.1f} kWh" if watt_hours >= 1000 else f"{watt_hours:.3g} Wh"


@register.filter
def co2(grams: float) -> str:
    """Mass of CO2 in g or kg."""
    return f"{grams / 1000:,.3g} kg" if grams >= 1000 else f"{grams:.3g} g"


@register.filter
def number(value: float | None) -> str:
    """Three significant digits; whole numbers with thousands separators."""
    if value is None:
        return NOTHING
    if float(value).is_integer():
        return f"{int(value):,}"
    if not LEAST_PLAIN <= abs(value) < MOST_PLAIN:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@register.filter
def gpu_hours(value: float | None) -> str:
    """GPU-hours as a number; what is less than four GPU-seconds is not written with an exponent."""
    return f"< {LEAST_PLAIN}" if value is not None and 0 < value < LEAST_PLAIN else number(value)


@register.filter
def sentence(text: str) -> str:
    """The text with one full stop at its end."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


@register.filter
def percent(fraction: float | None) -> str:
    """Percentage, e.g. 41 %, with two significant digits below 1 %."""
    if fraction is None:
        return NOTHING
    value = 100 * fraction
    if abs(value) < LEAST_PERCENT:  # rounding error of a solver
        return "0 %"
    return f"{value:.0f} %" if abs(value) >= 1 else f"{value:.2g} %"


@register.filter
def change(fraction: float | None) -> str:
    """Change from another figure, with its sign; from three times as much on as a multiple: 17.9 x."""
    if fraction is None or fraction < MANIFOLD:
        return f"{'+' * (fraction is not None and fraction > 0)}{percent(fraction)}"
    return f"{1 + fraction:.3g} x"


@register.filter
def percent_of(part: float | None, whole: float | None) -> float:
    """Percentage from 0 to 100, for bars."""
    return round(min(100.0, 100 * (part or 0) / whole), 2) if whole else 0.0


@register.filter
def fifths(fraction: float | None) -> int:
    """Shade of a cell, 0 to 5."""
    return ceil(5 * min(max(fraction or 0.0, 0.0), 1.0) - LEAST_PERCENT)


@register.filter
def ms(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{1000 * seconds:,.0f} ms" if seconds >= LEAST_WHOLE_MS else f"{1000 * seconds:.1f} ms"


@register.filter
def money(amount: float | None) -> str:
    """Amount with two decimals, in the site's currency where it names one."""
    return NOTHING if amount is None else f"{amount:,.2f} {settings.MOTLEY_CURRENCY}".strip()


@register.filter
def gib(mib: int | None) -> str:
    return f"{(mib or 0) / 1024:,.0f} GiB"


@register.filter
def memory(mib: int) -> str:
    """Memory of processes, of which parts of a GiB matter."""
    return f"{mib / MIB_PER_GIB:,.1f} GiB" if mib >= MIB_PER_GIB else f"{mib} MiB"


@register.filter
def minus(one: float, other: float) -> float:
    return one - other


@register.filter
def times(one: int, other: int) -> int:
    return one * other


@register.filter
def total(parts: dict[str, float]) -> float:
    return sum(parts.values())


@register.filter
def setting(value: object) -> str:
    """Value of a policy's parameter."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


@register.filter
def takes(parameter: Parameter) -> str:
    """Type and range of a policy's parameter."""
    if parameter.kind is str:
        return f"{kind_of(parameter)} {', '.join(parameter.names)}"
    between = "" if parameter.kind is bool else f", {parameter.least:g} to {parameter.most:g}"
    return f"{kind_of(parameter)}{between}"


@register.filter
def measured(value: float | None, measure: str) -> str:
    """An effect of a policy in the unit of its measure."""
    return NOTHING if value is None else amount(value, measure)


@register.filter
def verdict(state: str) -> str:
    """Verdict of a policy's guard on a measure."""
    return PolicyGuard.State(state).label


@register.filter
def value_of(mapping: Mapping[str, Any], key: str) -> Any:
    """The value of a key that is itself a variable; None if there is none."""
    return mapping.get(key)


@register.filter
def spaced(name: str) -> str:
    """A field's name with spaces for underscores."""
    return name.replace("_", " ")
