"""What a job would lose if it were stopped now."""

from dataclasses import dataclass
from datetime import datetime

from jobs_app.attempts import work_lost_gpu_s
from jobs_app.models import Attempt, Job


@dataclass(frozen=True)
class Stake:
    """`gpu_s`: GPU-seconds of work since the last progress report; none while the job has no processes."""

    job: Job
    attempt: Attempt | None
    gpu_s: float


def at_stake(job: Job, now: datetime) -> Stake:
    live = [a for a in job.attempts.all() if a.started_at and a.state != Attempt.State.ENDED]
    attempt = live[-1] if live else None
    return Stake(job, attempt, work_lost_gpu_s(attempt, now) if attempt else 0.0)
