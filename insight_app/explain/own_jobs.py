"""Figures of a user's own jobs: running, waiting, GPUs held, and jobs that ended within a day."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Count, Q, Sum

from jobs_app.models import Attempt, Job

A_DAY = timedelta(hours=24)


@dataclass(frozen=True)
class OwnJobs:
    """Numbers of jobs, and the GPUs that they hold now, by type."""

    running: int
    """Those that start or stop included."""
    waiting: int
    gpus: dict[str, int]
    succeeded: int
    failed: int
    """Timed out ones included."""
    gpu_hours: float
    """Of all attempts of the jobs that ended within the day."""

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


def own_jobs(user: User, now: datetime) -> OwnJobs:
    """Figures of the jobs that the user submitted, in four queries."""
    mine = Job.objects.filter(owner=user).order_by()
    waiting, running = (jobs.count() for jobs in (mine.queued(), mine.active()))
    live = Attempt.objects.live().filter(job__in=mine.active().values("pk")).order_by()
    succeeded, failed, gpu_s = _ended(user, now - A_DAY)
    return OwnJobs(
        running=running,
        waiting=waiting,
        gpus=dict(live.values_list("gpu_type__name").annotate(Sum("gpu_count"))),
        succeeded=succeeded,
        failed=failed,
        gpu_hours=gpu_s / 3600,
    )


def _ended(user: User, since: datetime) -> tuple[int, int, float]:
    """Jobs that succeeded and that failed since then, and their GPU-seconds."""
    ended = Job.objects.filter(owner=user, finished_at__gte=since).order_by()
    failed = Q(state__in=(Job.State.FAILED, Job.State.TIMED_OUT))
    found = ended.aggregate(
        succeeded=Count("pk", filter=Q(state=Job.State.SUCCEEDED)),
        failed=Count("pk", filter=failed),
        gpu_s=Sum("attained_gpu_s"),
    )
    return found["succeeded"], found["failed"], found["gpu_s"] or 0.0
