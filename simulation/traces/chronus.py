"""Reader of Chronus' traces: Philly's jobs with deadlines, times in minutes."""

from collections.abc import Iterable

from simulation.traces.reading import Line, read_table
from simulation.traces.trace import LeftOut, Trace, TraceJob

MINUTE_S = 60.0
NEEDS = ("job_id", "user", "num_gpu", "submit_time", "duration", "expect_time_list", "best_effort")


def read_chronus(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs that request GPUs; best-effort jobs have no deadline; the virtual cluster is the team."""
    return read_table(lines, _job, needs=NEEDS, skip_bad=skip_bad)


def _job(line: Line) -> TraceJob | LeftOut:
    if (gpus := line.whole_at("num_gpu", least=0)) == 0:
        return LeftOut.NO_GPU
    arrival_s = MINUTE_S * line.number_at("submit_time", least=0)
    best_effort = line.whole_at("best_effort", least=0) == 1
    within_s = None if best_effort else MINUTE_S * line.positive_at("expect_time_list")
    return TraceJob(
        name=line.text_at("job_id"),
        arrival_s=arrival_s,
        gangs=(gpus,),
        duration_s=MINUTE_S * line.positive_at("duration"),
        team=line.text_at("user"),
        deadline_s=None if within_s is None else arrival_s + within_s,
    )
