"""Figures for administrators on the home page: GPUs that jobs wait for, starved teams, failures, times of rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Sum

from accounting_app.fairness.usage_ledger import TeamShare
from jobs_app.models import Job, Reason
from scheduler_app.models import Round

STARVED = 0.9
"""Delivered over entitled below which a team with a backlog is starved."""
MOST_FAILURES, MOST_ROUNDS = 5, 60


@dataclass(frozen=True)
class PendingGpus:
    """GPUs that queued jobs with the same pending reason wait for, counted by their smallest gangs."""

    reason: str
    gpus: int
    jobs: int


def pending_gpus() -> list[PendingGpus]:
    """GPUs that queued jobs wait for, by the first pending reason of each job, the most GPUs first."""
    found = Job.objects.queued().order_by().values_list("reason").annotate(Sum("gpus_min"), Count("pk"))
    rows = [PendingGpus(Reason(reason).label if reason else "not seen by a round yet", *n) for reason, *n in found]
    return sorted(rows, key=lambda row: -row.gpus)


def starved_teams(shares: Sequence[TeamShare]) -> list[TeamShare]:
    """Teams with a backlog that got clearly less than their entitlement, the largest backlog first."""
    starved = [it for it in shares if it.backlog_gpu_hours > 0 and it.ratio is not None and it.ratio < STARVED]
    return sorted(starved, key=lambda share: -share.backlog_gpu_hours)


def last_failures() -> list[Job]:
    """The jobs that failed or timed out last, read by the index of each state."""
    states = (Job.State.FAILED, Job.State.TIMED_OUT)
    found = [Job.objects.filter(state=state).select_related("team", "owner")[:MOST_FAILURES] for state in states]
    return sorted((job for jobs in found for job in jobs), key=lambda job: job.pk, reverse=True)[:MOST_FAILURES]


def round_times_ms() -> list[float]:
    """Time that each of the last rounds took to decide, the oldest first."""
    seconds = Round.objects.order_by("-number").values_list("seconds", flat=True)[:MOST_ROUNDS]
    return [1000 * sum(steps.values()) for steps in reversed(seconds)]
