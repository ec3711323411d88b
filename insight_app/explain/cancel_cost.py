"""Cost of cancelling a job: the GPU time that it used, and how much of that is not known to be saved. Pure.

Motley knows that work is saved by the checkpoints that a job reports alone: a progress report says how far it is, not
that this is on a disk.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs_app.models import Attempt, Job


@dataclass(frozen=True)
class CancelCost:
    """`checkpoint_at`: when the last checkpoint that was reported was made; `attempt`: the one whose processes run."""

    job: Job
    worked_gpu_s: float
    unsaved_gpu_s: float
    checkpoint_at: datetime | None = None
    attempt: Attempt | None = None

    @property
    def words(self) -> str:
        """Whether its work is known to be saved."""
        if not self.worked_gpu_s:
            return "It has not run yet."
        if self.checkpoint_at is None:
            return "It has reported no checkpoint: whether any of its work is saved is not known."
        return "Its work up to its last checkpoint is saved."


def cancel_cost(job: Job, attempts: Iterable[Attempt], now: datetime) -> CancelCost:
    """Cost of cancelling the job now; `attempts` in the order in which they were made."""
    worked_gpu_s = unsaved_gpu_s = 0.0
    checkpoint_at, running = None, None
    for attempt in attempts:
        worked_gpu_s += attempt.ran_s(now) * attempt.gpu_count
        unsaved_gpu_s += attempt.ran_s(now) * attempt.gpu_count
        if attempt.checkpoint_at is not None:
            checkpoint_at = attempt.checkpoint_at
            since_s = ((attempt.ended_at or now) - checkpoint_at).total_seconds()
            unsaved_gpu_s = max(0.0, since_s) * attempt.gpu_count
        running = attempt if attempt.started_at and attempt.ended_at is None else None
    return CancelCost(job, worked_gpu_s, unsaved_gpu_s, checkpoint_at, running)
