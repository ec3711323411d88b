"""Reader of Alibaba's 2023 traces (openb): the pods that request GPUs, each rounded up to whole GPUs.

Pods that were never scheduled have no scheduled_time, and those that ran until the trace ends no deletion_time: how
long they run is not known, so they are left out and counted.
"""

from collections.abc import Iterable

from simulation.traces.reading import Line, read_table
from simulation.traces.trace import LeftOut, Trace, TraceJob

WHOLE_MILLI = 1000
NEEDS = ("name", "num_gpu", "gpu_spec", "creation_time", "deletion_time", "scheduled_time")


def read_alibaba(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read pods as jobs; a fraction of a GPU is rounded up and marked; allowed models become lower-case GPU types."""
    return read_table(lines, _job, needs=NEEDS, skip_bad=skip_bad)


def _job(line: Line) -> TraceJob | LeftOut:
    if (gpus := line.whole_at("num_gpu", least=0)) == 0:
        return LeftOut.NO_GPU
    if not line.has("scheduled_time"):
        return LeftOut.NEVER_SCHEDULED
    if not line.has("deletion_time"):
        return LeftOut.NOT_ENDED
    started_s = line.number_at("scheduled_time", least=0)
    if (ended_s := line.number_at("deletion_time", least=0)) <= started_s:
        line.refuse("deletion_time", "is not after scheduled_time")
    models = line.text_at("gpu_spec").lower().split("|") if line.has("gpu_spec") else None
    return TraceJob(
        name=line.text_at("name"),
        arrival_s=line.number_at("creation_time", least=0),
        gangs=(gpus,),
        gpu_types=frozenset(models) if models else None,
        duration_s=ended_s - started_s,
        rounded_up=line.has("gpu_milli") and line.number_at("gpu_milli", least=0) < WHOLE_MILLI,
    )
