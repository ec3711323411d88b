"""Layout of tables, and formats of times, durations, sizes and numbers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from motley_client.responses import Interval
from motley_command.terminal import sanitized, sanitized_lines

Cell = str | Text
NOW, NOW_S = "now", 5
"""What is less than so many seconds away is now: a forecast is made less often."""
LATE, LATE_S = "at any time ({} overdue)", NOW_S
"""What should have happened so many seconds ago, by the latest quantile: after `starts`, `done` and `is expected`."""
LEAST_PLAIN, LEAST_WHOLE = 0.001, 999.5
"""Smaller values are shown as `< 0.001`; from the second value on, `.3g` would write an exponent."""
LEAST_TOLD_H, LEAST_WHOLE_H = 0.05, 9.5
"""Of less waiting no sentence is made; from the second value on it has no decimals."""
BEYOND = "more than 3d"
UTC_TIME = r"(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)"
UTC_TIMES = re.compile(rf"{UTC_TIME}(?: to {UTC_TIME})? UTC")
"""Moments as the service writes them in sentences."""


LONGEST_NAME = 24
LEAST_PROSE = 12
"""Widths that the first and the last column keep on a narrow terminal."""
GAP = 2


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    empty: str,
    with_headings: bool = True,
    left_out_first: Sequence[str] = (),
) -> RenderableType:
    """A table; on a narrow terminal without the columns whose headings begin with these words, one after the other."""
    if not rows:
        return Text(empty)
    return _Fitted(headings, rows, with_headings, left_out_first)


@dataclass(frozen=True)
class _Fitted:
    """A table that chooses its columns when it knows how wide it may be."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    with_headings: bool
    left_out_first: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = _columns_that_fit(self, options.max_width)
        rows = [[row[column] for column in kept] for row in self.rows]
        yield _drawn([self.headings[column] for column in kept], rows, with_headings=self.with_headings)


def _columns_that_fit(drawn: _Fitted, width: int) -> list[int]:
    columns = zip(drawn.headings, *drawn.rows, strict=True)
    needs = [max(_cell(cell).cell_len for cell in column) + GAP for column in columns]
    needs[0] = min(needs[0], LONGEST_NAME + GAP)
    needs[-1] = min(needs[-1], LEAST_PROSE)
    kept = list(range(len(needs)))
    for word in drawn.left_out_first:
        if sum(needs[column] for column in kept) <= width:
            break
        kept = [column for column in kept if not drawn.headings[column].startswith(word)]
    return kept


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, with_headings: bool) -> Table:
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=with_headings)
    for column, heading in enumerate(headings):
        # On a narrow terminal the name and the last column, which is prose, are cut; states and ids are not.
        # rich narrows the columns that may wrap first; their cells are cut instead of wrapped.
        may_narrow = column in {0, len(headings) - 1}
        widest = max((_cell(row[column]).cell_len for row in rows), default=0)
        drawn.add_column(
            heading,
            no_wrap=not may_narrow,
            overflow="ellipsis",
            min_width=min(LONGEST_NAME, widest) if column == 0 else None,
        )
    for row in rows:
        drawn.add_row(*map(_cell, row))
    return drawn


def key_values(pairs: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Two columns of names and values; pairs with an empty value are left out."""
    lines = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value:
            lines.add_row(Text(name, style="bold"), text(value))
    return lines


def text(value: Cell) -> Text:
    return value if isinstance(value, Text) else Text(sanitized(value))


def lines_of(value: str) -> Text:
    """A value of several lines, such as a command."""
    return Text(sanitized_lines(value))


def when(at: str | None, now: datetime) -> str:
    """Age and time: `3m ago (2026-11-22T10:26:22Z)`."""
    return f"{age(at, now)} ago ({to_the_second(at)})" if at else ""


def to_the_second(at: str) -> str:
    """The ISO 8601 time without microseconds."""
    return re.sub(r"\.\d+", "", at)


def age(at: str | None, now: datetime) -> str:
    """Time since then, in one unit: `45s`, `12m`, `3h`, `2d`."""
    return duration(max((now - datetime.fromisoformat(at)).total_seconds(), 0)) if at else ""


def until(at: str, now: datetime) -> str:
    """Time until then: `in 12m`, or `now` if it has passed."""
    seconds = (datetime.fromisoformat(at) - now).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def duration(seconds: float) -> str:
    """Duration in its largest unit of which it has at least two: `45s`, `12m`, `3h`, `2d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


def interval(found: Interval, now: datetime) -> str:
    """Time to an event with its limits; what is less than 5 s away is now, beyond three days nothing is known."""
    words = _interval_words(found, now)
    return f"{words}, {note}" if (note := found.get("note")) else words


def _interval_words(found: Interval, now: datetime) -> str:
    if (late_s := _overdue_s(found, now)) >= LATE_S:
        return LATE.format(duration(late_s))
    low, median, high = (_from_now(at, now) for at in (found["low"], found["median"], found["high"]))
    if not found["median"]:
        return f"in {median} ({low} at the earliest)" if found["low"] else f"in {median}"
    if low == high:
        return NOW if high == NOW else f"in about {high}"
    if median == NOW:
        return f"now or {'within' if found['high'] else 'in'} {high}"
    return f"in about {median} ({low} to {high})"


def _overdue_s(found: Interval, now: datetime) -> float:
    """Seconds since the latest quantile; 0 where that is to come."""
    return max((now - datetime.fromisoformat(found["high"])).total_seconds(), 0) if found["high"] else 0


def _from_now(at: str | None, now: datetime) -> str:
    if at is None:
        return BEYOND
    seconds = (datetime.fromisoformat(at) - now).total_seconds()
    return duration(seconds) if seconds >= NOW_S else NOW


def by_clock(found: Interval, now: datetime, *, with_zone: bool = True) -> str:
    """Local times at which an event is expected, with the day where it is not today."""
    if not found["median"] or _overdue_s(found, now) >= LATE_S:
        return interval(found, now)
    low, median, high = (_clock(at, now) if at else BEYOND for at in (found["low"], found["median"], found["high"]))
    zone = f" {zone_at(now)}" if with_zone else ""
    return (f"at about {median}" if low == high else f"at {median} ({low} to {high})") + zone


def _clock(at: str, now: datetime) -> str:
    local = datetime.fromisoformat(at).astimezone()
    return f"{local:%H:%M}" if local.date() == now.astimezone().date() else f"{local:%a %H:%M}"


def local_minute(at: str) -> str:
    """Date and time in the zone of this machine: `2026-11-26 22:00 CET`."""
    return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M %Z}"


def zone_at(at: datetime) -> str:
    """Abbreviation of this machine's zone at that time, e.g. CEST; where it has none, its offset: UTC+05:45."""
    local = at.astimezone()
    name = local.tzname() or ""
    return name if name[:1].isalpha() else f"UTC{local.isoformat()[-len('+00:00') :]}"


def in_local_zone(sentence: str) -> str:
    """The sentence with times that are written as `2026-11-28 14:05 UTC` in the zone of this machine."""
    return UTC_TIMES.sub(_in_local_zone, sentence)


def _in_local_zone(found: re.Match[str]) -> str:
    try:
        moments = [datetime.fromisoformat(f"{text}+00:00") for text in found.groups() if text]
    except ValueError:  # the 31st of February
        return found[0]
    form = "%Y-%m-%d %H:%M:%S" if found[1].count(":") > 1 else "%Y-%m-%d %H:%M"
    times, zones = [f"{at.astimezone():{form}}" for at in moments], [zone_at(at) for at in moments]
    if len(set(zones)) == 1:
        return f"{' to '.join(times)} {zones[0]}"
    return " to ".join(f"{time} {zone}" for time, zone in zip(times, zones, strict=True))


def number(value: float | None, form: str = "{:.3g}") -> str:
    """The formatted number; empty if it is not known."""
    return "" if value is None else form.format(value)


def three_digits(value: float | None) -> str:
    """Costs and GPU-hours as on pages: `0.00666`, `1.5`, `12,346`; empty if it is not known."""
    if value is None:
        return ""
    if abs(value) >= LEAST_WHOLE:
        return f"{value:,.0f}"
    return f"< {LEAST_PLAIN}" if 0 < value < LEAST_PLAIN else f"{value:.3g}"


def hours(value: float | None) -> str:
    """Time of so many hours in one unit, with three digits: `1.64h`, `12.5m`, `98.4s`; empty if it is not known."""
    if value is None:
        return ""
    unit, per_hour = next(((unit, per) for unit, per in (("h", 1), ("m", 60)) if value * per >= 1), ("s", 3600))
    return f"{value * per_hour:.3g}{unit}"


def waiting_hours(value: float) -> str:
    """Hours of waiting as on pages, never with an exponent: `0.3 h`, `4.8 h`, `1,384 h`."""
    return f"{value:,.0f} h" if abs(value) >= LEAST_WHOLE_H else f"{value:.1f} h"


def gib(mib: int) -> str:
    return f"{mib / 1024:.0f} GiB"


def memory(mib: int) -> str:
    """Memory in MiB or, from 1 GiB on, in GiB with one decimal."""
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def _cell(value: Cell) -> Text:
    """Text of a cell, on one line, cut with an ellipsis."""
    cell = text(value)
    cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell
