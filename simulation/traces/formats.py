"""Registry of trace readers by format name, and recognition of a format by the first line of a trace."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from simulation.traces import alibaba, chronus, gavel, motley_csv, philly, sia, tiresias
from simulation.traces.philly_log import is_philly_log
from simulation.traces.trace import Trace


class Reader(Protocol):
    """Reads the lines of a file; raises InvalidTrace for the first invalid line unless invalid lines are skipped."""

    def __call__(self, lines: Iterable[str], *, skip_bad: bool = False) -> Trace: ...


FORMATS: dict[str, Reader] = {
    "gavel": gavel.read_gavel,
    "sia": sia.read_sia,
    "philly": philly.read_philly,
    "alibaba": alibaba.read_alibaba,
    "chronus": chronus.read_chronus,
    "tiresias": tiresias.read_tiresias,
    "csv": motley_csv.read_motley_csv,
}

HEADERS: dict[str, Sequence[str]] = {
    "sia": sia.NEEDS,
    "philly": philly.NEEDS,
    "alibaba": alibaba.NEEDS,
    "chronus": chronus.NEEDS,
    "tiresias": tiresias.ALL,
    "csv": motley_csv.NEEDED,
}
"""Columns by which a format is recognised, the more special one first: Chronus' table has all of Tiresias' columns."""


def recognised(lines: Iterable[str]) -> str | None:
    """Format of a trace by its first line that is not empty; None: none, or it cannot be told."""
    first = next((line for line in lines if line.strip()), "")
    if is_philly_log(first):
        return "philly"
    if first.count("\t") == gavel.COLUMNS - 1:
        return "gavel"
    columns = {name.strip() for name in first.split(",")}
    return next((name for name, needs in HEADERS.items() if columns.issuperset(needs)), None)
