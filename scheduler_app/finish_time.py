r"""Finish-time fairness rho of jobs that succeeded, by the formula of `allocation.fairness`.

The duration alone is :math:`W / \min(C / N,\ g)`: W is the job's work in seconds of the cluster's average GPU, which
stands for all GPU types, because a job's rate is known on those that it ran on only; C is the cluster's GPUs and N the
active jobs, both as means over its life, and g the most GPUs that it can use. Below g, a gang is taken to scale evenly.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

import numpy as np
from django.db.models import F, QuerySet

from allocation.fairness import finish_time_ratios
from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.models.job import arrival_of
from scheduler_app.models import Round

MOST_ROUNDS = 20_000
"""Of a longer life only the latest rounds are counted."""


MOST_JOBS = 1000
"""Of a longer time only the jobs that ended latest are counted."""


@dataclass(frozen=True)
class ClusterLoad:
    """Cumulative sums of the GPUs and of the jobs at each round, oldest round first."""

    at: Sequence[datetime]
    gpus: Sequence[int]
    jobs: Sequence[int]

    @classmethod
    def of(cls, rounds: Sequence[tuple[datetime, int, int]]) -> "ClusterLoad":
        at = accumulate((at for at, _, _ in rounds), max)  # a clock that was set back must not unsort them
        gpus = accumulate((gpus for _, gpus, _ in rounds), initial=0)
        jobs = accumulate((jobs for _, _, jobs in rounds), initial=0)
        return cls(list(at), list(gpus), list(jobs))

    def gpus_per_job(self, since: datetime, until: datetime) -> float:
        """Mean GPUs over mean jobs in the interval, or at the last round before it ended."""
        end = bisect_right(self.at, until)
        start = min(bisect_left(self.at, since), max(0, end - 1))
        return (self.gpus[end] - self.gpus[start]) / max(1, self.jobs[end] - self.jobs[start])


class FinishedJob(NamedTuple):
    """A finished job, and the seconds that its work takes on one average GPU."""

    arrived_at: datetime
    finished_at: datetime
    gpus_max: int
    work_s: float


def rho(job: FinishedJob, load: ClusterLoad) -> float | None:
    """Finish-time fairness of one job; None if it did no work or no round took place during its lifetime."""
    gpus = min(load.gpus_per_job(job.arrived_at, job.finished_at), job.gpus_max)
    if job.work_s <= 0 or gpus <= 0:
        return None
    jct_s = (job.finished_at - job.arrived_at).total_seconds()
    return float(finish_time_ratios(np.array([jct_s]), np.array([[job.work_s / gpus]]), np.ones(1))[0])


def rhos_between(after: int, until: int) -> list[float]:
    """Finish-time fairness of the jobs that succeeded between these two job events."""
    ended = JobEvent.objects.filter(pk__gt=after, pk__lte=until, kind=JobEvent.Kind.FINISHED).values("job")
    return _rhos(Job.objects.filter(pk__in=ended, state=Job.State.SUCCEEDED))


def rhos_since(since: datetime) -> list[float]:
    """Finish-time fairness of the jobs that succeeded since then, of the newest."""
    newest = Job.objects.filter(state=Job.State.SUCCEEDED, finished_at__gte=since).order_by("-finished_at")[:MOST_JOBS]
    return _rhos(Job.objects.filter(pk__in=list(newest.values_list("pk", flat=True))))


def _rhos(succeeded: QuerySet[Job]) -> list[float]:
    jobs = _succeeded(succeeded)
    if not jobs:
        return []
    load = _load_since(min(job.arrived_at for job in jobs))
    return [value for job in jobs if (value := rho(job, load)) is not None]


def _succeeded(jobs: QuerySet[Job]) -> list[FinishedJob]:
    rows = jobs.values_list("pk", "created_at", "begin_time", "finished_at", "gpus_max")
    ran = Attempt.objects.filter(job__in=jobs, started_at__isnull=False, ended_at__isnull=False)
    work_s: dict[UUID, float] = defaultdict(float)
    for job, start, end, speed in ran.values_list(
        "job", "started_at", "ended_at", F("gpu_count") * F("relative_speed")
    ):
        work_s[job] += (end - start).total_seconds() * speed
    return [
        FinishedJob(arrival_of(created, begin), finished, most, work_s[job])
        for job, created, begin, finished, most in rows
        if finished
    ]


def _load_since(since: datetime) -> ClusterLoad:
    rounds = Round.objects.committed().filter(started_at__gte=since).order_by("-number")
    return ClusterLoad.of(list(rounds.values_list("started_at", "gpus", "jobs")[:MOST_ROUNDS])[::-1])
