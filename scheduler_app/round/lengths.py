"""Lengths of jobs: the steps that they declare or report, else the duration of tasks or jobs that ended. No queries."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from accounting_app.durations.duration_history import request_of
from allocation.types import Floats
from estimation.boosted_durations import DurationEstimator
from estimation.duration_features import Submission
from estimation.durations import DurationEstimate, JobTraits
from estimation.stages import StageRatio
from jobs_app.models import Job
from scheduler_app.round.inputs import JobRow


class Lengths(NamedTuple):
    """Steps (m,) in all and left, inf where nothing is known, and done; the durations in seconds that they stand for.

    Steps are those in which rates count: of the initial batch, where the batch is tuned.

    A duration is that of the job's smallest gang on average GPUs.
    """

    total_steps: Floats
    remaining_steps: Floats
    done_steps: Floats
    """Of a job that reports none and whose length is estimated, those that its GPUs should have done since."""
    durations: list[DurationEstimate | None]


class EndedDurations(NamedTuple):
    """Observed durations: of sampled arrays' tasks, of all ended jobs, and of earlier stages."""

    of_arrays: Mapping[UUID, DurationEstimate]
    estimator: DurationEstimator
    stages: Mapping[UUID, StageRatio]


def lengths_of(
    jobs: Sequence[JobRow], ended: EndedDurations, *, base_gpus: Floats, base_rate: Floats, worked_s: Floats
) -> Lengths:
    """Lengths of jobs whose smallest gangs make base_rate steps/s on average GPUs.

    worked_s (m,): how long such a gang would have taken for what each job has done so far.
    """
    durations = _durations(jobs, ended, base_gpus, base_rate)
    works = [job.work for job in jobs]
    step = np.array([work.done for work in works], dtype=float)
    left = np.array([np.inf if work.left is None else work.left for work in works], dtype=float)
    left_s = [_left_s(duration, after) for duration, after in zip(durations, worked_s.tolist(), strict=True)]
    told = np.isfinite(left)
    remaining = np.where(told, left, np.array(left_s, dtype=float) * base_rate)
    done = np.where((step > 0) | told | np.isinf(remaining), step, worked_s * base_rate)
    return Lengths(done + remaining, remaining, done, durations)


def _durations(
    jobs: Sequence[JobRow], ended: EndedDurations, base_gpus: Floats, base_rate: Floats
) -> list[DurationEstimate | None]:
    """Durations of all jobs; those that declare none are estimated together."""
    found = [_told(job, ended, rate) for job, rate in zip(jobs, base_rate.tolist(), strict=True)]
    silent = [i for i, duration in enumerate(found) if duration is None]
    submissions = [as_submitted(jobs[i], int(base_gpus[i])) for i in silent]
    for i, duration in zip(silent, ended.estimator.estimates(submissions), strict=True):
        before = ended.stages.get(jobs[i].id)
        found[i] = before.corrected(duration) if before and duration else duration
    return found


def _told(job: JobRow, ended: EndedDurations, rate: float) -> DurationEstimate | None:
    if job.total_steps:
        return DurationEstimate.declared(job.total_steps / rate)
    if job.reported_total_steps and (total := job.work.total):
        return DurationEstimate.reported(total / rate)
    return ended.of_arrays.get(job.array_id) if job.array_id else None


def as_submitted(job: JobRow | Job, gpus: int) -> Submission:
    """The job as it was submitted, by the GPUs of its smallest gang."""
    traits = JobTraits(job.owner_id, job.name, gpus, job.team_id)
    return Submission(traits, job.created_at, request_of(job.gpu_types), job.time_limit_s)


def _left_s(duration: DurationEstimate | None, after_s: float) -> float:
    return duration.estimate.mean_left(after_s) if duration else np.inf
