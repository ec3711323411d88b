"""How tables look, and how times, sizes and amounts are written in them."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from motley_client.inert import inert

Cell = str | Text


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> RenderableType:
    if not rows:
        return Text(empty)
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        # On a narrow terminal the name and the last column, which is prose, give way; states and ids do not.
        # Columns that may wrap are the ones that rich narrows first; their cells are cut instead.
        gives_way = place in {0, len(headings) - 1}
        drawn.add_column(heading, no_wrap=not gives_way, overflow="ellipsis")
    for row in rows:
        drawn.add_row(*map(_cell, row))
    return drawn


def facts(pairs: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Names and what they are, line by line, without those that are nothing."""
    lines = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value:
            lines.add_row(Text(name, style="bold"), text(value))
    return lines


def text(value: Cell) -> Text:
    return value if isinstance(value, Text) else Text(inert(value))


def when(at: str | None, now: datetime) -> str:
    return f"{age(at, now)} ago ({at})" if at else ""


def age(at: str | None, now: datetime) -> str:
    """How long ago, in the two digits or so that matter: `45s`, `12m`, `3h`, `2d`."""
    return duration(max((now - datetime.fromisoformat(at)).total_seconds(), 0)) if at else ""


def until(at: str, now: datetime) -> str:
    """`in 12m`, or `now` for what should have been."""
    seconds = (datetime.fromisoformat(at) - now).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


def number(value: float | None, form: str = "{:.3g}") -> str:
    """The number, or nothing where it is not known."""
    return "" if value is None else form.format(value)


def gib(mib: int) -> str:
    return f"{mib / 1024:.0f} GiB"


def _cell(value: Cell) -> Text:
    """One line, cut where it does not fit."""
    cell = text(value)
    cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell
