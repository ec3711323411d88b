"""Readers of traces, by the name of their format."""

from collections.abc import Iterable
from typing import Protocol

from simulation.formats.alibaba import read_alibaba
from simulation.formats.chronus import read_chronus
from simulation.formats.gavel import read_gavel
from simulation.formats.motley_csv import read_motley_csv
from simulation.formats.philly import read_philly
from simulation.formats.sia import read_sia
from simulation.trace import Trace


class Reader(Protocol):
    """Lines of a file become jobs; InvalidTrace names the first line that cannot be read, unless they are skipped."""

    def __call__(self, lines: Iterable[str], *, skip_bad: bool = False) -> Trace: ...


FORMATS: dict[str, Reader] = {
    "gavel": read_gavel,
    "sia": read_sia,
    "philly": read_philly,
    "alibaba": read_alibaba,
    "chronus": read_chronus,
    "csv": read_motley_csv,
}
