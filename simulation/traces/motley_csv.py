"""Reader and writer of Motley's own traces: CSV with a header, columns in any order.

name, arrival_s, gpus (or min_gpus and max_gpus; or replicas and gpus_per_replica, as in a job's spec), total_steps or
duration_s; and if wanted workload, weight, team, team_weight, deadline_s, which is on the clock of arrival_s, and
declared_length: that which policies assume over the true one, or `none`; array: the name of the array of which it is a
task; gpu_types: the only ones that it may use; rates: its steps/s by GPU type and GPUs; restart_s: the time that a
restart takes; uneven_gang: whether parts of a gang on several nodes may differ, `true` or empty; cpu_curve: its
throughput by CPUs per GPU, in any unit.

replicas is a number or, for an elastic job, {"min": 1, "max": 4}; gpus_per_replica is a number for any GPU type, or one
for each of the types that the job may use: {"a100": 2, "v100": 4}.

gpu_types are names with spaces between; rates are {"a100": {"1": 12.5, "2": 23}}, a cpu_curve is {"1": 0.3, "3": 1}.

Texts that a spreadsheet would take for a formula have an apostrophe in front, which the reader takes off.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from allocation.configurations import gang_sizes
from simulation.traces.reading import Line, read_table
from simulation.traces.trace import GangSpread, InvalidTrace, KnownRate, Program, Trace, TraceJob

COLUMNS = (
    "name",
    "arrival_s",
    "gpus",
    "min_gpus",
    "max_gpus",
    "replicas",
    "gpus_per_replica",
    "workload",
    "total_steps",
    "duration_s",
    "weight",
    "team",
    "deadline_s",
    "team_weight",
    "declared_length",
    "array",
    "gpu_types",
    "rates",
    "restart_s",
    "uneven_gang",
    "cpu_curve",
)


CELL_BEGINS, FORMULA = r"(?:^|(?<=[;|\t\r\n]))", r"(?='*[=+\-@\t\r])"
"""The begin of a text, or what comes after a character at which some spreadsheets separate cells: quotes do not help
there, for they are in the middle of a cell."""
BEFORE_A_FORMULA, ADDED_APOSTROPHE = re.compile(CELL_BEGINS + FORMULA), re.compile(f"{CELL_BEGINS}'{FORMULA}")
NEEDED = ("name", "arrival_s")
NOT_DECLARED = "none"
IN_GPUS = ("gpus", "min_gpus", "max_gpus")
MOST_GPUS = 100_000
"""Of a job, as in the service."""
REPLICAS, GPUS_PER_REPLICA = '2, or {"min": 1, "max": 4}', '4, or {"a100": 2, "v100": 4}'
RATES = '{"a100": {"1": 12.5, "2": 23}}'
CPU_CURVE = '{"1": 0.3, "3": 1}'
"""Examples of what these columns hold."""


def as_text(value: str) -> str:
    """A value that spreadsheets take for no formula, nor for several cells of which one is a formula."""
    return BEFORE_A_FORMULA.sub("'", value)


def from_text(value: str) -> str:
    """The inverse of `as_text`."""
    return ADDED_APOSTROPHE.sub("", value)


class _Size(NamedTuple):
    gangs: tuple[int, ...]
    gpus_per_replica: int | Mapping[str, int]
    replicas: tuple[int, ...]


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
    size = _size(line)
    return TraceJob(
        name=from_text(line.text_at("name")),
        arrival_s=arrival_s,
        gangs=size.gangs,
        gpus_per_replica=size.gpus_per_replica,
        replicas=size.replicas,
        gpu_types=frozenset(line.text_at("gpu_types").split()) if line.has("gpu_types") else None,
        restart_s=line.number_at("restart_s", least=0) if line.has("restart_s") else None,
        spread=GangSpread.UNEVEN if _is_true(line, "uneven_gang") else GangSpread.EQUAL,
        told_restart_s=line.number_at("restart_s", least=0) if line.has("restart_s") else None,
        program=Program(_text_or_none(line, "workload"), rates=_rates(line), cpu_curve=_cpu_curve(line)),
        total_steps=line.positive_at("total_steps") if line.has("total_steps") else None,
        duration_s=line.positive_at("duration_s") if line.has("duration_s") else None,
        weight=line.weight_at("weight") if line.has("weight") else 1.0,
        team=_text_or_none(line, "team"),
        deadline_s=line.number_at("deadline_s", least=arrival_s) if line.has("deadline_s") else None,
        team_weight=line.weight_at("team_weight") if line.has("team_weight") else 1.0,
        declared_length=_declared_length(line),
        array=_text_or_none(line, "array"),
    )


def _text_or_none(line: Line, column: str) -> str | None:
    return from_text(line.text_at(column)) if line.has(column) else None


def _declared_length(line: Line) -> float:
    if not line.has("declared_length"):
        return 1.0
    if line.text_at("declared_length") == NOT_DECLARED:
        return inf
    return line.positive_at("declared_length")


def _is_true(line: Line, column: str) -> bool:
    if line.has(column) and line.text_at(column) != "true":
        line.refuse(column, f"'{line.text_at(column):.40}' is not true; leave it empty for no")
    return line.has(column)


def _rates(line: Line) -> tuple[KnownRate, ...]:
    if not line.has("rates"):
        return ()
    try:
        of_types = json.loads(line.text_at("rates"))
        rates = [
            KnownRate(str(gpu_type), int(gpus), float(rate))
            for gpu_type, of_type in of_types.items()
            for gpus, rate in of_type.items()
        ]
    except (ValueError, TypeError, AttributeError, RecursionError):
        line.refuse("rates", f"'{line.text_at('rates'):.40}' is not steps/s by GPU type and GPUs, such as {RATES}")
    if not rates or any(known.gpus < 1 or not 0 < known.steps_per_s < inf for known in rates):
        line.refuse("rates", f"must be of one GPU or more, and positive numbers, such as {RATES}")
    return tuple(rates)


def _cpu_curve(line: Line) -> tuple[tuple[int, float], ...]:
    if not line.has("cpu_curve"):
        return ()
    try:
        curve = [(int(cpus), float(rate)) for cpus, rate in json.loads(line.text_at("cpu_curve")).items()]
    except (ValueError, TypeError, AttributeError, RecursionError):
        line.refuse("cpu_curve", f"'{line.text_at('cpu_curve'):.40}' is not throughput by CPUs, such as {CPU_CURVE}")
    if not curve or any(cpus < 1 or not 0 < rate < inf for cpus, rate in curve):
        line.refuse("cpu_curve", f"must be of one CPU or more, and positive numbers, such as {CPU_CURVE}")
    return tuple(sorted(curve))


def _size(line: Line) -> _Size:
    """In GPUs, or in replicas, whose gangs are those of all types: the same number of them is a gang on each."""
    if not (line.has("replicas") or line.has("gpus_per_replica")):
        return _Size(_gangs(line), {}, ())
    for column in filter(line.has, IN_GPUS):
        line.refuse(column, "is given beside replicas or gpus_per_replica")
    if not line.has("gpus_per_replica"):
        line.refuse("replicas", f"needs the column gpus_per_replica: {GPUS_PER_REPLICA}")
    if not line.has("replicas"):
        line.refuse("gpus_per_replica", f"needs the column replicas: {REPLICAS}")
    of_replica = line.whole_or_map_at("gpus_per_replica", example=GPUS_PER_REPLICA)
    units = {of_replica} if isinstance(of_replica, int) else set(of_replica.values())
    least, most = _replicas(line)
    if most * max(units) > MOST_GPUS:
        line.refuse("replicas", f"are {most * max(units)} GPUs, more than {MOST_GPUS}")
    replicas = gang_sizes(least, most)
    return _Size(tuple(sorted({unit * count for unit in units for count in replicas})), of_replica, replicas)


def _replicas(line: Line) -> tuple[int, int]:
    """Fewest and most replicas."""
    replicas = line.whole_or_map_at("replicas", example=REPLICAS)
    if isinstance(replicas, int):
        return replicas, replicas
    if set(replicas) != {"min", "max"}:
        line.refuse("replicas", f"must have min and max, and nothing else: {REPLICAS}")
    if replicas["max"] < replicas["min"]:
        line.refuse("replicas", f"max {replicas['max']} is less than min {replicas['min']}")
    return replicas["min"], replicas["max"]


def _gangs(line: Line) -> tuple[int, ...]:
    if line.has("gpus"):
        if line.has("min_gpus") or line.has("max_gpus"):
            line.refuse("gpus", "is given beside min_gpus or max_gpus")
        return (line.whole_at("gpus", least=1),)
    if not (line.has("min_gpus") and line.has("max_gpus")):
        line.refuse("name", "must have either gpus, or min_gpus and max_gpus, or replicas and gpus_per_replica")
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


def stream_motley_csv(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """The same with all columns, one job after the other."""
    writer = csv.DictWriter(_Lines(), COLUMNS, lineterminator="\n")
    yield writer.writeheader()
    for job in jobs:
        yield writer.writerow(_fields(job))


class _Lines:
    """File-like object whose `write` returns the line, for `csv.writer`."""

    def write(self, line: str) -> str:
        return line


def _fields(job: TraceJob) -> dict[str, str]:
    values: dict[str, str | float | None] = {
        "name": as_text(job.name),
        "arrival_s": job.arrival_s,
        **_size_fields(job),
        "workload": as_text(job.program.workload or ""),
        "total_steps": job.total_steps,
        "duration_s": job.duration_s,
        "weight": None if job.weight == 1 else job.weight,
        "team": as_text(job.team or ""),
        "deadline_s": job.deadline_s,
        "team_weight": None if job.team_weight == 1 else job.team_weight,
        "declared_length": _length_text(job.declared_length),
        "array": as_text(job.array or ""),
        "gpu_types": " ".join(sorted(job.gpu_types or ())),
        "rates": _rates_text(job.program.rates),
        "restart_s": job.restart_s,
        "cpu_curve": json.dumps(dict(job.program.cpu_curve)) if job.program.cpu_curve else None,
        "uneven_gang": "true" if job.spread is GangSpread.UNEVEN else None,
    }
    return {name: _text(value) for name, value in values.items()}


def _size_fields(job: TraceJob) -> dict[str, str | float | None]:
    """Columns of the size: GPUs, or replicas and the GPUs of each."""
    if job.replicas:
        least, most, of_replica = job.replicas[0], job.replicas[-1], job.gpus_per_replica
        return dict.fromkeys(IN_GPUS) | {
            "replicas": least if least == most else json.dumps({"min": least, "max": most}),
            "gpus_per_replica": of_replica if isinstance(of_replica, int) else json.dumps(dict(of_replica)),
        }
    rigid = len(job.gangs) == 1
    return {
        "gpus": job.gangs[0] if rigid else None,
        "min_gpus": None if rigid else job.gangs[0],
        "max_gpus": None if rigid else job.gangs[-1],
        "replicas": None,
        "gpus_per_replica": None,
    }


def _rates_text(rates: Iterable[KnownRate]) -> str:
    of_types: dict[str, dict[str, float]] = {}
    for known in rates:
        of_types.setdefault(known.gpu_type, {})[str(known.gpus)] = known.steps_per_s
    return json.dumps(of_types) if of_types else ""


def _length_text(declared: float) -> str | float | None:
    if declared == inf:
        return NOT_DECLARED
    return None if declared == 1 else declared


def _text(value: str | float | None) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)
