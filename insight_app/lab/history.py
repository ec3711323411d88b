"""Jobs that ran in a period, with their attempts and all that a round would know of their rates: a few queries."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q

from insight_app.errors import HistoryTooLong
from jobs_app.models import Attempt
from jobs_app.models.job import JobQuerySet, arrival_of
from scheduler_app.models import PolicySetting
from scheduler_app.round.inputs import InputRows, JobRow, noise_of, read_input_rows, read_job_rows, read_measured
from scheduler_app.round.job_options import Timing

MOST_JOBS = 20_000
"""Of a trace that is simulated: the rates of so many are computed in some seconds."""
MOST_STREAMED = 200_000
PART = 1_000
"""Jobs of an export that are in memory at a time."""
TIMES = ("pk", "created_at", "begin_time", "finished_at", "ran_s")


class Run(NamedTuple):
    """An attempt that ran: its GPUs, and the rate in steps/s that its round counted on."""

    gpu_type: str
    gpus: int
    seconds: float
    steps_per_s: float


class Times(NamedTuple):
    """When a job arrived, by submission or begin time, and ended, and how many seconds it ran between."""

    arrived_at: datetime
    finished_at: datetime
    ran_s: float


@dataclass(frozen=True, eq=False)
class History:
    """Jobs of a period that ran and have ended, in the order of submission."""

    rows: InputRows
    """Those of a round in which these jobs are the queue."""
    timing: Timing
    runs: Mapping[UUID, Sequence[Run]]
    times: Mapping[UUID, Times]

    @property
    def jobs(self) -> Sequence[JobRow]:
        return self.rows.jobs

    @property
    def began(self) -> datetime:
        """Time of the first submission."""
        return min(job.created_at for job in self.jobs)


def read_history(jobs: JobQuerySet, since: datetime, until: datetime, *, now: datetime) -> History:
    """Read those of the jobs that were submitted in the period; raises HistoryTooLong."""
    found = list(_that_ran(jobs, since, until).values_list(*TIMES)[: MOST_JOBS + 1])
    if len(found) > MOST_JOBS:
        raise HistoryTooLong(f"More than {MOST_JOBS:,} jobs ran in this period: choose a shorter one.")
    return _history(jobs, found, read_input_rows(now, now), now)


def stream_history(jobs: JobQuerySet, since: datetime, until: datetime, *, now: datetime) -> Iterator[History]:
    """Read the history in parts by the time of submission, one part in memory at a time; raises HistoryTooLong."""
    ran = _that_ran(jobs, since, until)
    if ran.count() > MOST_STREAMED:
        raise HistoryTooLong(f"More than {MOST_STREAMED:,} jobs ran in this period: choose a shorter one.")
    return _parts(jobs, ran.order_by("created_at", "pk"), now)


def _parts(jobs: JobQuerySet, ran: JobQuerySet, now: datetime) -> Iterator[History]:
    before, rest = read_input_rows(now, now), ran
    while found := list(rest.values_list(*TIMES)[:PART]):
        yield _history(jobs, found, before, now)
        last, at, *_ = found[-1]
        rest = ran.filter(Q(created_at__gt=at) | Q(created_at=at, pk__gt=last))


def _that_ran(jobs: JobQuerySet, since: datetime, until: datetime) -> JobQuerySet:
    return jobs.filter(created_at__gte=since, created_at__lt=until, finished_at__isnull=False, ran_s__gt=0)


def _history(jobs: JobQuerySet, found: Sequence[tuple[Any, ...]], before: InputRows, now: datetime) -> History:
    """History of these jobs, given with their `TIMES`; `before` are the rows of a round without them."""
    setting = PolicySetting.objects.current()
    ran = jobs.filter(pk__in=[pk for pk, *_ in found])  # none that ends while this is read
    rows = read_job_rows(ran, before.nodes, {})
    return History(
        rows=replace(
            before,
            jobs=rows,
            measured=read_measured(rows),
            noise=noise_of(row.workload for row in rows if row.batch_size),
        ),
        timing=Timing(now, setting.round_length_s, setting.min_run_s, now),
        runs=_runs(ran),
        times={pk: Times(arrival_of(came, begin), ended, ran_s) for pk, came, begin, ended, ran_s in found if ended},
    )


def _runs(jobs: JobQuerySet) -> Mapping[UUID, Sequence[Run]]:
    ended = Attempt.objects.filter(job__in=jobs.order_by(), started_at__isnull=False, ended_at__isnull=False)
    rows = ended.values_list("job", "gpu_type__name", "gpu_count", "started_at", "ended_at", "rate")
    runs: dict[UUID, list[Run]] = defaultdict(list)
    for job, gpu_type, gpus, started_at, ended_at, rate in rows:
        if started_at and ended_at:
            runs[job].append(Run(gpu_type, gpus, (ended_at - started_at).total_seconds(), rate))
    return runs
