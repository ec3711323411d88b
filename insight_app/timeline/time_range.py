"""Time windows of the timeline: length of the past and of the forecast that they show."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

BINS = 900
"""About the pixels of a chart: what is shorter than one of so many parts of the time shown is drawn as density."""


@dataclass(frozen=True)
class Window:
    """Length of the past and of the time ahead; forecasts look three days ahead."""

    words: str
    past: timedelta
    ahead: timedelta


WINDOWS = {
    "1h": Window("the last hour", timedelta(hours=1), timedelta(minutes=30)),
    "6h": Window("the last 6 hours", timedelta(hours=6), timedelta(hours=2)),
    "24h": Window("the last 24 hours", timedelta(hours=24), timedelta(hours=8)),
    "7d": Window("the last 7 days", timedelta(days=7), timedelta(days=2)),
    "28d": Window("the last 28 days", timedelta(days=28), timedelta(days=3)),
}


DEFAULT = "24h"


def shortest_window(history: timedelta) -> str:
    """The shortest window that shows so much of the past; the default at most."""
    up_to_default = list(WINDOWS)[: list(WINDOWS).index(DEFAULT)]
    return next((name for name in up_to_default if WINDOWS[name].past >= history), DEFAULT)


@dataclass(frozen=True)
class Frame:
    """The time that a timeline shows: from `since` over `now` to `until`."""

    since: datetime
    now: datetime
    until: datetime

    @classmethod
    def of(cls, window: Window, now: datetime) -> Self:
        return cls(now - window.past, now, now + window.ahead)

    def meets(self, since: datetime, until: datetime | None) -> bool:
        """Whether a time span overlaps the frame; it has no end if `until` is None."""
        return since < self.until and (until is None or until > self.since)

    @property
    def bin(self) -> timedelta:
        return (self.until - self.since) / BINS
