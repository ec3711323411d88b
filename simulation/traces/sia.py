"""Reader and writer of Sia's workloads: name, time, application, num_replicas, batch_size, optional category."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from simulation.traces.reading import Line, read_table
from simulation.traces.trace import GangSpread, Program, Trace, TraceJob

NEEDS = ("name", "time", "application", "num_replicas", "batch_size")
MOST = 64
GANGS = (1, 2, *range(4, MOST + 1, 4))
"""Gang sizes: one, two or a multiple of four GPUs, on nodes of four or eight that the gang fills."""

ADAPTIVE = "adaptive"


def read_sia(lines: Iterable[str], *, skip_bad: bool = False, category: str = ADAPTIVE) -> Trace:
    """Read the jobs; `category` holds for jobs that name none."""

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
        spread=GangSpread.UNEVEN,
    )


def _scaled(job: TraceJob) -> TraceJob:
    return replace(job, gangs=tuple(gang for gang in GANGS if gang <= job.gangs[0]), spread=GangSpread.FULL)


def _adaptive(job: TraceJob) -> TraceJob:
    return replace(job, gangs=GANGS, spread=GangSpread.FULL, program=job.program._replace(tuned=True))


def write_sia(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """Lines from which the same jobs can be read, with category rigid."""
    yield ",".join(NEEDS) + "\n"
    for job in jobs:
        yield f"{job.name},{job.arrival_s:.10g},{job.program.workload},{job.gangs[0]},{job.program.batch}\n"


CATEGORIES: dict[str, Callable[[TraceJob], TraceJob]] = {
    ADAPTIVE: _adaptive,
    "scale-gpus": _scaled,
    "rigid": lambda job: job,
}
"""Categories: GPUs and batch are tuned; GPUs are, up to the number named; neither is."""
