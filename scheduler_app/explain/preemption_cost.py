"""Preemption cost: the work that a job would lose if it were stopped now."""

from dataclasses import dataclass
from datetime import datetime

from jobs_app.lifecycle.endings import work_lost_gpu_s
from jobs_app.models import Attempt, Job


@dataclass(frozen=True)
class PreemptionCost:
    """`gpu_s`: GPU-seconds of work since the last progress report; none while the job has no processes."""

    job: Job
    attempt: Attempt | None
    gpu_s: float


def preemption_cost(job: Job, now: datetime) -> PreemptionCost:
    """Cost of stopping the job's running attempt now."""
    live = [a for a in job.attempts.all() if a.started_at and a.state != Attempt.State.ENDED]
    attempt = live[-1] if live else None
    return PreemptionCost(job, attempt, work_lost_gpu_s(attempt, now) if attempt else 0.0)
