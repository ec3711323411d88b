"""Registry of trace readers by format name."""

from collections.abc import Iterable
from typing import Protocol

from simulation.traces.alibaba import read_alibaba
from simulation.traces.chronus import read_chronus
from simulation.traces.gavel import read_gavel
from simulation.traces.motley_csv import read_motley_csv
from simulation.traces.philly import read_philly
from simulation.traces.sia import read_sia
from simulation.traces.trace import Trace


class Reader(Protocol):
    """Reads the lines of a file; raises InvalidTrace for the first invalid line unless invalid lines are skipped."""

    def __call__(self, lines: Iterable[str], *, skip_bad: bool = False) -> Trace: ...


FORMATS: dict[str, Reader] = {
    "gavel": read_gavel,
    "sia": read_sia,
    "philly": read_philly,
    "alibaba": read_alibaba,
    "chronus": read_chronus,
    "csv": read_motley_csv,
}
