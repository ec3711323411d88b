"""Probability over time that a job runs, from the quantiles of its start and its end. Pure."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from insight_app.start_forecasts.showing import Interval, ShownForecast

BELOW = (0.0, 0.3, 0.7, 1.0)
"""Probability that an event has come, by how many of its three quantiles have passed: the middle between two."""


class Presence(NamedTuple):
    """The probability with which the job runs from one moment to another."""

    since: datetime
    until: datetime
    probability: float


def presence(forecast: ShownForecast, now: datetime, horizon: datetime) -> Iterator[Presence]:
    """Times between now and the horizon in which the job may run; unknown quantiles are beyond the horizon."""
    moments = [now, horizon]
    for interval in (forecast.start, forecast.finish):
        moments += [at for at in _quantiles(interval) if at is not None and now < at < horizon]
    for since, until in pairwise(sorted(set(moments))):
        probability = _come_by(forecast.start, since) - _come_by(forecast.finish, since)
        if probability > 0:
            yield Presence(since, until, round(probability, 2))


def _come_by(interval: Interval | None, at: datetime) -> float:
    """Probability that the event has happened by then; 1 without an interval."""
    if interval is None:
        return 1.0
    return BELOW[sum(quantile is not None and quantile <= at for quantile in _quantiles(interval))]


def _quantiles(interval: Interval | None) -> tuple[datetime | None, ...]:
    return (interval.low, interval.median, interval.high) if interval else ()
