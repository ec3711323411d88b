"""Motley's own traces: a table with a header, its columns in any order.

name, arrival_s, gpus (or min_gpus and max_gpus), total_steps or duration_s; and if wanted workload, weight, team and
deadline_s, which is on the clock of arrival_s.
"""

from collections.abc import Iterable

from allocation.configurations import gang_sizes
from simulation.formats.reading import Line, read_table
from simulation.trace import InvalidTrace, Program, Trace, TraceJob

COLUMNS = (
    "name",
    "arrival_s",
    "gpus",
    "min_gpus",
    "max_gpus",
    "workload",
    "total_steps",
    "duration_s",
    "weight",
    "team",
    "deadline_s",
)


def read_motley_csv(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Give the jobs; an unknown column is refused, for it may be a known one misspelt."""
    return read_table(_with_known_header(lines), _job, needs=("name", "arrival_s"), skip_bad=skip_bad)


def _with_known_header(lines: Iterable[str]) -> Iterable[str]:
    for number, line in enumerate(lines):
        for place, name in enumerate(line.split(",") if number == 0 else ()):
            if name.strip() not in COLUMNS:
                raise InvalidTrace(1, place + 1, f"'{name.strip():.40}' is not one of {', '.join(COLUMNS)}")
        yield line


def _job(line: Line) -> TraceJob:
    arrival_s = line.number_at("arrival_s", least=0)
    if line.has("total_steps") == line.has("duration_s"):
        line.refuse("name", "must have either total_steps or duration_s")
    return TraceJob(
        name=line.text_at("name"),
        arrival_s=arrival_s,
        gangs=_gangs(line),
        program=Program(line.text_at("workload") if line.has("workload") else None),
        total_steps=line.positive_at("total_steps") if line.has("total_steps") else None,
        duration_s=line.positive_at("duration_s") if line.has("duration_s") else None,
        weight=line.positive_at("weight") if line.has("weight") else 1.0,
        team=line.text_at("team") if line.has("team") else None,
        deadline_s=line.number_at("deadline_s", least=arrival_s) if line.has("deadline_s") else None,
    )


def _gangs(line: Line) -> tuple[int, ...]:
    if line.has("gpus"):
        if line.has("min_gpus") or line.has("max_gpus"):
            line.refuse("gpus", "is given beside min_gpus or max_gpus")
        return (line.whole_at("gpus", least=1),)
    if not (line.has("min_gpus") and line.has("max_gpus")):
        line.refuse("name", "must have either gpus, or min_gpus and max_gpus")
    least = line.whole_at("min_gpus", least=1)
    return gang_sizes(least, line.whole_at("max_gpus", least=least))
