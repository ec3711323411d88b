"""A history as a trace for the simulator: the work that jobs really did, and the rates that rounds count on. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from math import inf

from django.utils.crypto import salted_hmac

from allocation.configurations import gang_sizes
from allocation.types import Floats
from cluster_app.replica_size import GpusPerReplica
from insight_app.lab.history import History, Run
from scheduler_app.round.candidate_jobs import InService
from scheduler_app.round.inputs import JobRow
from scheduler_app.round.job_options import configurations, job_options_of
from simulation.traces.trace import GangSpread, KnownRate, Program, TraceJob

MOST_TIMES, MOST_S = 100, 7 * 86_400.0
"""Work that would take longer than so many times the time that the job ran, and than a week, is no real one."""
DIGITS = 12
"""Of the number in place of a name."""
Naming = Callable[[str, str], str]
"""The name in the trace of something of a kind, such as a team, from its own name."""


def as_they_are(_: str, name: str) -> str:
    return name


def numbered(kind: str, name: str) -> str:
    """The kind and a number that is the same in each export of this service: team-402615529317.

    The number is a keyed hash: nobody without the service's key can find a name by trying names.
    """
    number = int.from_bytes(salted_hmac("motley.history", f"{kind} {name}", algorithm="sha256").digest()[:8])
    return f"{kind}-{number % 10**DIGITS:0{DIGITS}}"


def trace_of(history: History, naming: Naming = as_they_are, *, began: datetime | None = None) -> list[TraceJob]:
    """The jobs whose work is known, by arrival; time starts with the first, or with `began`.

    The work is the steps that the job reported, else those that its rates make of the time that it ran.
    """
    if not history.jobs:
        return []
    rates, start = _rates(history), began or min(job.arrived_at for job in history.jobs)
    jobs = [_job(history, job, known, start, naming) for job, known in zip(history.jobs, rates, strict=True)]
    return sorted((job for job in jobs if job.total_steps), key=lambda job: job.arrival_s)


def is_credible(job: TraceJob, ran_s: float) -> bool:
    """Whether a job that ran so long can have done this work: a job may report any step, and then report another.

    A simulation goes on until the work is done, by the rates that rounds count on.
    """
    fastest = max((known.steps_per_s for known in job.program.rates), default=0.0)
    return fastest == 0 or (job.total_steps or 0) <= fastest * max(MOST_TIMES * ran_s, MOST_S)


def stream_trace(parts: Iterable[History], naming: Naming) -> Iterator[TraceJob]:
    """The jobs of a history in parts, of which the first has the first job."""
    began: datetime | None = None
    for part in parts:
        began = began or part.began
        yield from trace_of(part, naming, began=began)


def _job(history: History, job: JobRow, rates: Sequence[KnownRate], began: datetime, naming: Naming) -> TraceJob:
    steps, team = _steps(job, history.runs.get(job.id, ()), rates), history.rows.teams[job.team_id]
    gangs, of_replica, replicas = _size(job)
    deadline_s = None if job.deadline is None else (job.deadline - began).total_seconds()
    arrival_s = (job.arrived_at - began).total_seconds()
    return TraceJob(
        name=naming("job", str(job.id)),
        arrival_s=arrival_s,
        gangs=gangs,
        gpus_per_replica=of_replica,
        replicas=replicas,
        gpu_types=_types(history, job, rates),
        spread=GangSpread.UNEVEN if job.uneven_gang else GangSpread.EQUAL,
        program=Program(naming("workload", job.workload), rates=tuple(rates)),
        restart_s=job.restart_s,
        total_steps=steps,
        weight=job.weight,
        team=naming("team", team.name),
        team_weight=team.weight,
        array=naming("array", str(job.array_id)) if job.array_id else None,
        declared_length=told / steps if (told := _told_length(job)) and steps else inf,
        deadline_s=deadline_s if deadline_s is not None and deadline_s >= arrival_s else None,
    )


def _told_length(job: JobRow) -> float | None:
    """Steps in which rates count, as declared or reported; a job may have made more than it said."""
    return job.work.total if job.batch_size and job.reported_total_steps else job.steps_in_all


def _steps(job: JobRow, runs: Iterable[Run], rates: Iterable[KnownRate]) -> float:
    rate_of = {(known.gpu_type, known.gpus): known.steps_per_s for known in rates}
    ran = sum(run.seconds * rate_of.get((run.gpu_type, run.gpus), 0.0) for run in runs)
    return job.work.done if job.step else ran


def _size(job: JobRow) -> tuple[tuple[int, ...], int | dict[str, int], tuple[int, ...]]:
    """Gangs, GPUs of a replica, and numbers of replicas, as the reader of traces has them."""
    size: GpusPerReplica = job.gpus_per_replica
    counts = gang_sizes(*size.replicas(job.gpus_min, job.gpus_max))
    if not size.several:
        return counts, {}, ()
    units = {gpus for _, gpus in size.by_type} or {size.any_type}
    gangs = tuple(sorted({unit * count for unit in units for count in counts}))
    return gangs, dict(size.by_type) or size.any_type, counts


def _types(history: History, job: JobRow, rates: Iterable[KnownRate]) -> frozenset[str] | None:
    """The only types that it may use: as it says, else those with enough memory; None: any."""
    if job.gpu_types:
        return frozenset(job.gpu_types)
    there, able = {kind.name for kind in history.rows.types}, frozenset(known.gpu_type for known in rates)
    return able if job.gpu_memory_mib and able < there else None


# -- rates -----------------------------------------------------------------------------------------------------


def _rates(history: History) -> list[list[KnownRate]]:
    """Rates of each job by GPU type and GPUs: measured, else declared, else estimated."""
    rows = history.rows
    present = InService(rows.gpus, [0] * len(rows.gpus), [False] * len(rows.gpus), {})
    offered = configurations(rows, present, rows.jobs)
    rate = job_options_of(rows, present, offered, list(rows.jobs), history.timing).rate
    places = [
        (rows.types[j].name, gpus) for j, gpus in zip(offered.gpu_type.tolist(), offered.gpus.tolist(), strict=True)
    ]
    of_jobs = zip(history.jobs, rate, strict=True)
    return [_known(of_job, places, history.runs.get(job.id, ())) for job, of_job in of_jobs]


def _known(rate: Floats, places: Sequence[tuple[str, int]], runs: Iterable[Run]) -> list[KnownRate]:
    """Rates of a job; where it ran, but could not now, that which its round counted on."""
    counted = {(run.gpu_type, run.gpus): run.steps_per_s for run in runs if run.steps_per_s > 0}
    now = {place: float(rate[k]) for k, place in enumerate(places) if rate[k] > 0}
    return [KnownRate(*place, steps_per_s) for place, steps_per_s in sorted((counted | now).items())]
