"""Reader of Microsoft's Philly trace as a table: timestamp, duration, num_gpus, gpu_time, cluster."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from simulation.traces.reading import Line, read_table
from simulation.traces.trace import Trace, TraceJob

NEEDS = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs, named by line number; time starts at the first arrival; the virtual cluster is the team."""
    trace = read_table(lines, _job, needs=NEEDS, skip_bad=skip_bad)
    began_s = min((job.arrival_s for job in trace.jobs), default=0.0)
    return Trace.of((replace(job, arrival_s=job.arrival_s - began_s) for job in trace.jobs), trace.skipped)


def _job(line: Line) -> TraceJob:
    return TraceJob(
        name=str(line.number),
        arrival_s=_seconds(line),
        gangs=(line.whole_at("num_gpus", least=1),),
        duration_s=line.positive_at("duration"),
        team=line.text_at("cluster"),
    )


def _seconds(line: Line) -> float:
    try:
        return datetime.fromisoformat(line.text_at("timestamp")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        line.refuse("timestamp", f"'{line.text_at('timestamp')}' is not a date and time")
