"""Reader of Tiresias' traces: job_id, num_gpu, submit_time, iterations, model_name, duration, interval; in seconds."""

from collections.abc import Iterable

from simulation.traces.reading import Line, read_table
from simulation.traces.trace import LeftOut, Program, Trace, TraceJob

NEEDS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
ALL = (*NEEDS, "iterations", "interval")


def read_tiresias(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs; the model is the workload, and the duration, not the number of iterations, is the length."""
    return read_table(lines, _job, needs=NEEDS, skip_bad=skip_bad)


def _job(line: Line) -> TraceJob | LeftOut:
    if (gpus := line.whole_at("num_gpu", least=0)) == 0:
        return LeftOut.NO_GPU
    return TraceJob(
        name=line.text_at("job_id"),
        arrival_s=line.number_at("submit_time", least=0),
        gangs=(gpus,),
        program=Program(line.text_at("model_name")),
        duration_s=line.positive_at("duration"),
    )
