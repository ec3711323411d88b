"""Jobs that ran in a period, with their attempts and all that a round would know of their rates: a few queries."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from jobs_app.models import Attempt
from jobs_app.models.job import JobQuerySet, arrival_of
from scheduler_app.errors import HistoryTooLong
from scheduler_app.models import PolicySetting
from scheduler_app.round.inputs import InputRows, JobRow, noise_of, read_input_rows, read_job_rows, read_measured
from scheduler_app.round.job_options import Timing

MOST_JOBS = 20_000
"""Of a trace: the rates of so many are computed in some seconds."""


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


def read_history(jobs: JobQuerySet, since: datetime, until: datetime, *, now: datetime) -> History:
    """Those of the jobs that were submitted in the period; raises HistoryTooLong."""
    ran = jobs.filter(created_at__gte=since, created_at__lt=until, finished_at__isnull=False, ran_s__gt=0)
    found = list(ran.values_list("pk", "created_at", "begin_time", "finished_at", "ran_s")[: MOST_JOBS + 1])
    if len(found) > MOST_JOBS:
        raise HistoryTooLong(f"More than {MOST_JOBS:,} jobs ran in this period: choose a shorter one.")
    setting = PolicySetting.objects.current()
    ran = jobs.filter(pk__in=[pk for pk, *_ in found])  # none that ends while this is read
    before = read_input_rows(now, now)
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
