"""Effects of a policy since it was chosen: jobs that ended or were submitted, and GPU utilization; four queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log2
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Count, F, Q, Sum

from accounting_app.models import GpuTypeUsage
from allocation.types import Floats
from database.time_bucket import Bucket
from insight_app.policy_effects.guard import Observed, window_spread
from jobs_app.models import Attempt, Job

HOUR_S = 3600
MOST_JOBS = 5_000
"""The newest that ended, and the newest that came: more change no mean by what counts here."""
BEFORE = timedelta(days=7)
"""The time whose windows are compared."""


class _Ended(NamedTuple):
    created_at: datetime
    finished_at: datetime
    ran_s: float
    runs: int


def read_effects(since: datetime, now: datetime) -> Observed:
    """Read the jobs and the utilization from the change until now."""
    ended, came = _ended(since, now), Job.objects.filter(created_at__gte=since, created_at__lt=now)
    return Observed(
        hours=(now - since).total_seconds() / HOUR_S,
        jct_h=_jct_h(ended),
        queueing_h=_queueing_h(ended),
        restarts=_restarts(ended),
        came_after=np.array([job.created_at >= since for job in ended], dtype=np.bool_),
        waits_h=np.array(_waits_s(came, now), dtype=float) / HOUR_S,
        arrivals=came.count(),
        utilization=_utilization(since, now),
    )


def _jct_h(ended: Sequence[_Ended]) -> Floats:
    return np.array([(job.finished_at - job.created_at).total_seconds() for job in ended], dtype=float) / HOUR_S


def _queueing_h(ended: Sequence[_Ended]) -> Floats:
    return _jct_h(ended) - np.array([job.ran_s for job in ended], dtype=float) / HOUR_S


def _restarts(ended: Sequence[_Ended]) -> Floats:
    return np.array([job.runs - 1 for job in ended], dtype=float)


def _ended(since: datetime, now: datetime) -> Sequence[_Ended]:
    """Jobs that ran and ended, the newest of many, in the order of their ends."""
    lately = Attempt.objects.filter(ended_at__gte=since, ended_at__lt=now).order_by().values("job")
    jobs = Job.objects.filter(pk__in=lately, finished_at__gte=since, finished_at__lt=now, ran_s__gt=0)
    ran = Count("attempts", filter=Q(attempts__started_at__isnull=False))
    columns = ("created_at", "finished_at", "ran_s")
    rows = jobs.annotate(runs=ran).order_by("-finished_at").values_list(*columns, "runs")[:MOST_JOBS]
    return [_Ended(*row) for row in reversed(rows)]


def _waits_s(came: Any, now: datetime) -> list[float]:
    """Waits of jobs that do not wait for a begin time, a release or another job."""
    free = came.filter(begin_time=None, held=False, needs=None).exclude(started_at=None, finished_at__isnull=False)
    rows = free.order_by("-created_at").values_list("created_at", "started_at")[:MOST_JOBS]
    return [((started_at or now) - created_at).total_seconds() for created_at, started_at in reversed(rows)]


def _utilization(since: datetime, now: datetime) -> float | None:
    sums = GpuTypeUsage.objects.filter(minute__gte=since, minute__lt=now).aggregate(
        busy=Sum("busy_gpu_s"), present=Sum("present_gpu_s")
    )
    return sums["busy"] / sums["present"] if sums["present"] else None


@dataclass(frozen=True)
class RestartCost:
    """GPU time spent on restarts by decisions of the policy, of attempts that ended."""

    since: datetime
    preempted: int
    moved: int
    jobs: int
    """That were preempted or moved at least once."""
    held_gpu_s: float
    starting_gpu_s: float
    lost_gpu_s: float

    @property
    def overhead(self) -> float | None:
        """Part of the GPU time that went into starts and into work that was done twice."""
        return (self.starting_gpu_s + self.lost_gpu_s) / self.held_gpu_s if self.held_gpu_s else None


def read_restart_cost(since: datetime, now: datetime) -> RestartCost:
    """Restarts and their cost since then, of the newest attempts that ended: one query."""
    ended = Attempt.objects.filter(ended_at__gte=since, ended_at__lt=now, launched_at__isnull=False)
    columns = ("job", "outcome", "gpu_count", "launched_at", "started_at", "ended_at", "work_lost_gpu_s")
    rows = list(ended.order_by("-ended_at").values_list(*columns, named=True)[:MOST_JOBS])
    restarted = [row for row in rows if row.outcome in (Attempt.Outcome.PREEMPTED, Attempt.Outcome.MOVED)]
    return RestartCost(
        since=rows[-1].ended_at if len(rows) == MOST_JOBS else since,
        preempted=sum(row.outcome == Attempt.Outcome.PREEMPTED for row in restarted),
        moved=sum(row.outcome == Attempt.Outcome.MOVED for row in restarted),
        jobs=len({row.job for row in restarted}),
        held_gpu_s=sum(row.gpu_count * (row.ended_at - row.launched_at).total_seconds() for row in rows),
        starting_gpu_s=sum(
            row.gpu_count * ((row.started_at or row.ended_at) - row.launched_at).total_seconds() for row in rows
        ),
        lost_gpu_s=sum(row.work_lost_gpu_s for row in restarted),
    )


# -- before the change -------------------------------------------------------------------------------------------


def spreads_before(now: datetime, *, longest_h: float) -> list[dict[str, float | None]]:
    """Standard deviation of the means of past windows, for windows of 1, 2, 4, ... hours."""
    ended = _ended(now - BEFORE, now)
    at_h = np.array([job.finished_at.timestamp() for job in ended], dtype=float) / HOUR_S
    columns = {"avg_jct_h": _jct_h(ended), "queueing_h": _queueing_h(ended), "restarts_per_job": _restarts(ended)}
    busy_at_h, busy = _hourly_utilization(now)
    lengths = [2.0**power for power in range(int(log2(max(longest_h, 1))) + 1)]
    return [
        {
            "hours": hours,
            **{name: window_spread(at_h, column, hours) for name, column in columns.items()},
            "utilization": window_spread(busy_at_h, busy, hours),
        }
        for hours in lengths
    ]


def _hourly_utilization(now: datetime) -> tuple[Floats, Floats]:
    """Hours since the epoch, and the utilization in each."""
    rows = (
        GpuTypeUsage.objects.filter(minute__gte=now - BEFORE, minute__lt=now)
        .values(bucket=Bucket(F("minute"), seconds=HOUR_S))
        .annotate(busy=Sum("busy_gpu_s"), present=Sum("present_gpu_s"))
        .order_by("bucket")
    )
    known = [(row["bucket"], row["busy"] / row["present"]) for row in rows if row["present"]]
    at_h, busy = np.array(known, dtype=float).reshape(-1, 2).T
    return at_h, busy
