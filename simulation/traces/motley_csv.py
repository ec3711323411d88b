"""Reader and writer of Motley's own traces: CSV with a header, columns in any order.

name, arrival_s, gpus (or min_gpus and max_gpus), total_steps or duration_s; and if wanted workload, weight, team,
team_weight, deadline_s, which is on the clock of arrival_s, and declared_length: that which policies assume over the
true one, or `none`.
"""

import csv
from collections.abc import Iterable, Iterator
from math import inf

from allocation.configurations import gang_sizes
from simulation.traces.reading import Line, read_table
from simulation.traces.trace import InvalidTrace, Program, Trace, TraceJob

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
    "team_weight",
    "declared_length",
)


NEEDED = ("name", "arrival_s")
NOT_DECLARED = "none"


def read_motley_csv(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs; an unknown column is an error, because it may be a misspelt one."""
    return read_table(_with_known_header(lines), _job, needs=NEEDED, skip_bad=skip_bad)


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
        weight=line.weight_at("weight") if line.has("weight") else 1.0,
        team=line.text_at("team") if line.has("team") else None,
        deadline_s=line.number_at("deadline_s", least=arrival_s) if line.has("deadline_s") else None,
        team_weight=line.weight_at("team_weight") if line.has("team_weight") else 1.0,
        declared_length=_declared_length(line),
    )


def _declared_length(line: Line) -> float:
    if not line.has("declared_length"):
        return 1.0
    if line.text_at("declared_length") == NOT_DECLARED:
        return inf
    return line.positive_at("declared_length")


def _gangs(line: Line) -> tuple[int, ...]:
    if line.has("gpus"):
        if line.has("min_gpus") or line.has("max_gpus"):
            line.refuse("gpus", "is given beside min_gpus or max_gpus")
        return (line.whole_at("gpus", least=1),)
    if not (line.has("min_gpus") and line.has("max_gpus")):
        line.refuse("name", "must have either gpus, or min_gpus and max_gpus")
    least = line.whole_at("min_gpus", least=1)
    return gang_sizes(least, line.whole_at("max_gpus", least=least))


def write_motley_csv(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """Lines from which the same jobs can be read; columns that no job needs are left out."""
    rows = [_fields(job) for job in jobs]
    used = [column for column in COLUMNS if column in NEEDED or any(row[column] for row in rows)]
    writer = csv.DictWriter(_Lines(), used, extrasaction="ignore", lineterminator="\n")
    yield writer.writeheader()
    for row in rows:
        yield writer.writerow(row)


class _Lines:
    """File-like object whose `write` returns the line, for `csv.writer`."""

    def write(self, line: str) -> str:
        return line


def _fields(job: TraceJob) -> dict[str, str]:
    rigid = len(job.gangs) == 1
    values: dict[str, str | float | None] = {
        "name": job.name,
        "arrival_s": job.arrival_s,
        "gpus": job.gangs[0] if rigid else None,
        "min_gpus": None if rigid else job.gangs[0],
        "max_gpus": None if rigid else job.gangs[-1],
        "workload": job.program.workload,
        "total_steps": job.total_steps,
        "duration_s": job.duration_s,
        "weight": None if job.weight == 1 else job.weight,
        "team": job.team,
        "deadline_s": job.deadline_s,
        "team_weight": None if job.team_weight == 1 else job.team_weight,
        "declared_length": _length_text(job.declared_length),
    }
    return {name: _text(value) for name, value in values.items()}


def _length_text(declared: float) -> str | float | None:
    if declared == inf:
        return NOT_DECLARED
    return None if declared == 1 else declared


def _text(value: str | float | None) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)
