"""Prices of each GPU type over the time of a timeline: those of past rounds, and those that the plan expects."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from allocation.policies import prices_in_hours
from insight_app.gpu_prices.past import PriceSpan, hours_by_price, read_past_prices
from insight_app.gpu_prices.planned import PlannedHours, read_planned_hours
from insight_app.gpu_prices.wording import is_told
from insight_app.timeline.time_range import Frame
from scheduler_app.models import PolicySetting

BINS = 150
"""Means of so many equal parts of the past are told."""
MOST_ROUNDS = 3_000
"""Of more rounds some stand for all."""
CHEAPER = 0.5
"""Part of the planned price of now below which a GPU counts as cheap."""
SOON = timedelta(minutes=1)
"""An interval of which less is left is over when its price is read."""


class TypePrice(NamedTuple):
    """Hours that others wait per GPU-hour of a type over some time; `load`: GPUs in use, where the plan tells it."""

    gpu_type: str
    since: datetime
    until: datetime
    price: float
    planned: bool
    load: float | None = None


def read_prices(frame: Frame, gpu_type: str = "") -> list[TypePrice]:
    """Prices in the frame by GPU type and time, of one type if it is named; empty: the policy counts in other units."""
    if not prices_in_hours(PolicySetting.objects.current().policy):
        return []
    past = past_prices(read_past_prices(frame.since, frame.now, most=MOST_ROUNDS), frame)
    ahead = read_planned_hours(frame.now)
    found = [*past, *(planned_prices(ahead, frame) if ahead else ())]
    wanted = (one for one in found if gpu_type in ("", one.gpu_type))
    return sorted(wanted, key=lambda one: (one.gpu_type, one.since))


# -- pure ------------------------------------------------------------------------------------------------------------


def past_prices(spans: Sequence[PriceSpan], frame: Frame) -> Iterator[TypePrice]:
    """Means of prices over equal parts of the past, of those parts in which there were rounds with prices in hours."""
    part = (frame.now - frame.since) / BINS
    parts: dict[int, list[PriceSpan]] = {}
    for span in spans:
        parts.setdefault(int((span.began_at - frame.since) / part), []).append(span)
    for some in parts.values():
        hours = sum(span.hours for span in some)
        for gpu_type, saved_h in hours_by_price(some).items():
            if hours:
                yield TypePrice(gpu_type, some[0].began_at, some[-1].ended_at, saved_h / hours, planned=False)


def planned_prices(planned: PlannedHours, frame: Frame) -> Iterator[TypePrice]:
    """The plan's prices and load of each interval that lies ahead in the frame."""
    for gpu_type, intervals in planned.types.items():
        for since, until, price, load in intervals:
            if frame.meets(since, until) and until > frame.now:
                cut = max(since, frame.now), min(until, frame.until)
                yield TypePrice(gpu_type, *cut, price, planned=True, load=load)


class CheapLater(NamedTuple):
    """The planned price of a GPU type now, and from when it is at most half of that; None: not in the frame."""

    gpu_type: str
    price: float
    later_at: datetime | None
    later_price: float | None


def cheap_later(prices: Sequence[TypePrice]) -> list[CheapLater]:
    """Of each GPU type whose planned price of now is told in words, sorted by name."""
    planned: dict[str, list[TypePrice]] = {}
    for one in prices:
        if one.planned and one.until - one.since >= SOON:
            planned.setdefault(one.gpu_type, []).append(one)
    return [_cheap_later(name, planned[name]) for name in sorted(planned) if is_told(planned[name][0].price)]


def _cheap_later(gpu_type: str, planned: Sequence[TypePrice]) -> CheapLater:
    now = planned[0].price
    later = next((one for one in planned if one.price <= CHEAPER * now), None)
    return CheapLater(gpu_type, now, later and later.since, later and later.price)
