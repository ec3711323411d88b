"""Sia's workloads: name, time, application, num_replicas, batch_size, and if there are several kinds, category."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from simulation.formats.reading import Line, read_table
from simulation.trace import Program, Spread, Trace, TraceJob

NEEDS = ("name", "time", "application", "num_replicas", "batch_size")
MOST = 64
GANGS = (1, 2, *range(4, MOST + 1, 4))
"""One or two GPUs, or several fours: on nodes of four or eight, if these are filled."""

ADAPTIVE = "adaptive"


def read_sia(lines: Iterable[str], *, skip_bad: bool = False, category: str = ADAPTIVE) -> Trace:
    """Give the jobs, of this category where none is named."""

    def job_of(line: Line) -> TraceJob:
        named = line.text_at("category") if line.has("category") else category
        if named not in CATEGORIES:
            line.refuse("category", f"'{named}' is not one of {', '.join(CATEGORIES)}")
        return CATEGORIES[named](_rigid(line))

    return read_table(lines, job_of, needs=NEEDS, skip_bad=skip_bad)


def _rigid(line: Line) -> TraceJob:
    return TraceJob(
        name=line.text_at("name"),
        arrival_s=line.number_at("time", least=0),
        gangs=(line.whole_at("num_replicas", least=1),),
        program=Program(line.text_at("application"), line.whole_at("batch_size", least=1)),
        spread=Spread.UNEVEN,
    )


def _scaled(job: TraceJob) -> TraceJob:
    return replace(job, gangs=tuple(gang for gang in GANGS if gang <= job.gangs[0]), spread=Spread.FULL)


def _adaptive(job: TraceJob) -> TraceJob:
    return replace(job, gangs=GANGS, spread=Spread.FULL, program=job.program._replace(tuned=True))


def write_sia(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """Give the lines of a workload from which the same jobs are read again, of the category rigid."""
    yield ",".join(NEEDS) + "\n"
    for job in jobs:
        yield f"{job.name},{job.arrival_s:.10g},{job.program.workload},{job.gangs[0]},{job.program.batch}\n"


CATEGORIES: dict[str, Callable[[TraceJob], TraceJob]] = {
    ADAPTIVE: _adaptive,
    "scale-gpus": _scaled,
    "rigid": lambda job: job,
}
"""What may be chosen for a job: its GPUs and its batch; its GPUs, up to those it names; neither."""
