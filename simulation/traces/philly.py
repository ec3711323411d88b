"""Reader of Microsoft's Philly trace: its own cluster_job_log, or a table of timestamp, duration, num_gpus, cluster."""

from collections.abc import Iterable
from datetime import UTC, datetime

from simulation.traces.philly_log import is_philly_log, read_philly_log
from simulation.traces.reading import Line, read_table
from simulation.traces.trace import Trace, TraceJob

NEEDS = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read either form; time starts at the first arrival; the virtual cluster is the team."""
    lines = list(lines)
    if is_philly_log(next((line for line in lines if line.strip()), "")):
        return read_philly_log(lines, skip_bad=skip_bad)
    return read_table(lines, _job, needs=NEEDS, skip_bad=skip_bad).from_first_arrival()


def _job(line: Line) -> TraceJob:
    """The job, named by its line number."""
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
