"""What the steps of jobs with a tuned batch were worth, in steps of the initial batch: summed up report by report.

A report adds its own steps since the one before, each by what it was worth then. A job that goes back to a checkpoint
goes back to the sum of that step, as its reported checkpoints tell it, and between these in proportion.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from estimation.training_work import Reached, WorthByStep, worth_of_step
from jobs_app.measurement.checkpoint_history import worth_by_step
from jobs_app.models import Job


class WorkReport(NamedTuple):
    """A report of a job with a tuned batch, beside what is stored of it."""

    job: UUID
    limits: dict[str, int]
    """Of its batch."""
    before: int
    """Its step as stored."""
    worth_done: float | None
    """Of the steps before; None: nothing has been summed up yet."""
    noise_scale: float | None
    batch: int
    """Samples of a step."""
    begins: int | None
    """First step of an attempt that reports for the first time."""
    step: int
    checkpoint: int | None
    """Step of the checkpoint that it reports."""

    @property
    def can_be_summed(self) -> bool:
        """Whether its steps can be valued; those before the first noise wait for it."""
        return self.noise_scale is not None or self.worth_done is not None

    @property
    def each(self) -> float:
        return worth_of_step(self.limits, self.noise_scale, self.batch)

    @property
    def goes_back(self) -> bool:
        return min(self.step, self.step if self.begins is None else self.begins) < self.before


class WorthDone(NamedTuple):
    """Steps of the initial batch that the job has done, and those of them up to its checkpoint."""

    steps: float
    at_checkpoint: float | None


def worth_done(reports: Collection[WorkReport]) -> dict[UUID, WorthDone]:
    """The sums of these jobs; checkpoints are read of those that went back alone."""
    made = worth_by_step([one.job for one in reports if one.goes_back])
    return {one.job: summed(one, made.get(one.job, ())) for one in reports}


def worth_at(job: Job, step: int) -> float | None:
    """What the steps of a job up to this one were worth; None: it has not been summed up."""
    if job.worth_done is None:
        return None
    known = [*worth_by_step([job.pk]).get(job.pk, ()), Reached(job.step, job.worth_done)]
    return WorthByStep(known).at(step, job.work.each)


def summed(report: WorkReport, checkpoints: Sequence[Reached]) -> WorthDone:
    """The sum with this report; steps before the first sum are all worth what they are now."""
    each = report.each
    so_far = report.before * each if report.worth_done is None else report.worth_done
    known = [*checkpoints, Reached(report.before, so_far)]
    if report.begins is not None:
        known.append(Reached(report.begins, WorthByStep(known).at(report.begins, each)))
    known.append(Reached(report.step, WorthByStep(known).at(report.step, each)))
    made = report.checkpoint
    return WorthDone(known[-1].worth, None if made is None else WorthByStep(known).at(made, each))
