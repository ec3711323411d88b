"""Times in words, and the unit in which several are compared: pages, reports and charts tell times alike."""

from collections.abc import Iterable
from typing import NamedTuple

LENGTHS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
LEAST_SHOWN_S = 0.05


class TimeUnit(NamedTuple):
    """Unit of times that are kept in hours."""

    name: str
    plural: str
    per_hour: float


HOURS, MINUTES, SECONDS = (
    TimeUnit("h", "hours", 1.0),
    TimeUnit("min", "minutes", 60.0),
    TimeUnit("s", "seconds", 3600.0),
)


def unit_of(hours: Iterable[float | int | None]) -> TimeUnit:
    """The largest unit of which the longest time is one or more; seconds for shorter ones, hours for none."""
    longest = max((abs(value) for value in hours if value is not None), default=0.0)
    if not longest:
        return HOURS
    return next((unit for unit in (HOURS, MINUTES) if longest * unit.per_hour >= 1), SECONDS)


def format_duration(seconds: float) -> str:
    """Duration in its two largest units, e.g. 3 min 12 s."""
    if seconds < 1:
        return f"{seconds:.1f} s" if seconds >= LEAST_SHOWN_S else "0 s"
    left = round(seconds)
    parts: list[str] = []
    for name, size in LENGTHS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
        elif parts:
            break
        left %= size
    return " ".join(parts)
