"""Prices of past rounds whose policy counts in hours, each with the time for which the round was in force."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from django.db.models import F
from django.db.models.functions import Mod

from allocation.policies import prices_in_hours
from scheduler_app.models import PolicySetting, Round

LONGEST = timedelta(hours=1)
"""A round counts for so long, or two rounds, if the next is made later: the service stood still."""


class RoundPrices(NamedTuple):
    """Prices of one round, and when it began."""

    policy: str
    began_at: datetime
    prices: Mapping[str, float]


class PriceSpan(NamedTuple):
    """Time for which prices were in force: hours that others wait per GPU-hour, by GPU type."""

    began_at: datetime
    ended_at: datetime
    prices: Mapping[str, float]

    @property
    def hours(self) -> float:
        return (self.ended_at - self.began_at) / timedelta(hours=1)


def read_past_prices(since: datetime, until: datetime, *, most: int | None = None) -> list[PriceSpan]:
    """Read the prices of the rounds that began in this time; of more than `most` every second, third, ...: two queries.

    Of those that are left out, the one before stands for them.
    """
    rounds = Round.objects.committed().filter(started_at__gte=since, started_at__lt=until).order_by("number")
    every = max(1, -(-rounds.count() // most)) if most else 1
    some = rounds.annotate(place=Mod(F("number"), every)).filter(place=0) if every > 1 else rounds
    rows = [RoundPrices(*row) for row in some.values_list("policy", "started_at", "prices")]
    longest = max(LONGEST, 2 * timedelta(seconds=PolicySetting.objects.current().round_length_s))
    return price_spans(rows, until, longest=every * longest)


def price_spans(rounds: Iterable[RoundPrices], until: datetime, *, longest: timedelta = LONGEST) -> list[PriceSpan]:
    """Each round of a policy whose prices are hours, until the next, or until then; pure."""
    begun = list(rounds)
    ends = [later.began_at for _, later in pairwise(begun)] + [until] * bool(begun)
    return [
        PriceSpan(one.began_at, min(max(end, one.began_at), one.began_at + longest), one.prices)
        for one, end in zip(begun, ends, strict=True)
        if prices_in_hours(one.policy)
    ]


def hours_by_price(spans: Sequence[PriceSpan]) -> dict[str, float]:
    """Hours of waiting that one more GPU of each type would have saved: its price, summed up over the time."""
    saved: dict[str, float] = {}
    for span in spans:
        for gpu_type, price in span.prices.items():
            saved[gpu_type] = saved.get(gpu_type, 0.0) + max(price, 0.0) * span.hours
    return saved
