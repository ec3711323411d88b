"""Reader of Gavel's traces: ten tab-separated columns."""

from collections.abc import Iterable, Iterator

from simulation.traces.reading import Line, read_lines
from simulation.traces.trace import Program, Trace, TraceJob

COLUMNS = 10
WORKLOAD, STEPS, GPUS, WEIGHT, ARRIVAL = 0, 5, 6, 7, 9


def read_gavel(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs, named by their line number from 0 as in Gavel."""
    return read_lines(_numbered(lines), _job, skip_bad=skip_bad)


def _numbered(lines: Iterable[str]) -> Iterator[Line]:
    return (Line(number, text.rstrip("\n").split("\t")) for number, text in enumerate(lines, 1) if text.strip())


def _job(line: Line) -> TraceJob:
    line.expect(COLUMNS)
    return TraceJob(
        name=str(line.number - 1),
        arrival_s=line.number_at(ARRIVAL, least=0),
        gangs=(line.whole_at(GPUS, least=1),),
        program=Program(line.text_at(WORKLOAD)),
        total_steps=line.whole_at(STEPS, least=1),
        weight=line.weight_at(WEIGHT),
    )
