"""Remaining running time of a job: from declared or reported steps, from its array, or from ended jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounting_app.durations.array_samples import read_array_samples
from accounting_app.durations.boosted_model import read_model
from accounting_app.durations.duration_history import history_of, read_ended_jobs
from accounting_app.durations.stage_history import read_stage_ratios
from accounting_app.models import DurationForecast
from estimation.boosted_durations import DurationEstimator
from estimation.durations import Basis, DurationEstimate
from estimation.estimate import HIGH, LOW
from estimation.training_work import TrainingWork
from jobs_app.models import Attempt, Job, JobDependency
from jobs_app.models.job import JobArray
from scheduler_app.round.arrays import duration_of
from scheduler_app.round.lengths import as_submitted

FEWEST_OF_ALL = 30
"""A mean over fewer jobs of all teams would tell how long those of others took."""


@dataclass(frozen=True)
class RemainingWork:
    """Estimated running time that is left, in seconds, on the GPUs that the job holds; else on average ones."""

    seconds: float
    least_seconds: float
    most_seconds: float
    basis: Basis
    jobs: int
    """Ended jobs behind it."""
    runs: bool
    """Whether it holds GPUs, so that this is the time to its end unless it is preempted."""
    detail: str
    """What it is based on, in words."""


def remaining_work(job: Job, attempts: Sequence[Attempt], now: datetime) -> RemainingWork | None:
    """Remaining running time of an unfinished job, at most what its time limit leaves; None: it is not known."""
    if job.is_final:
        return None
    live = next((attempt for attempt in reversed(attempts) if attempt.state != Attempt.State.ENDED), None)
    found = _estimated(job, attempts, live, now)
    if found is None or job.time_limit_s is None:
        return found
    return _at_most(found, max(job.time_limit_s - job.ran_s - (live.ran_s(now) if live else 0.0), 0.0))


def _at_most(found: RemainingWork, limit_s: float) -> RemainingWork:
    """The estimate, bounded by the time that the job may still run."""
    if found.most_seconds <= limit_s:
        return found
    seconds, least_s = min(found.seconds, limit_s), min(found.least_seconds, limit_s)
    detail = f"{found.detail}; its time limit stops it then" if found.seconds > limit_s else found.detail
    return replace(found, seconds=seconds, least_seconds=least_s, most_seconds=limit_s, detail=detail)


def _estimated(job: Job, attempts: Sequence[Attempt], live: Attempt | None, now: datetime) -> RemainingWork | None:
    """Remaining running time, whatever the time limit."""
    forecast = DurationForecast.objects.filter(pk=job.pk).first()
    if job.steps_in_all:
        return _of_steps(job, live, forecast)
    gpus = forecast.gpus if forecast else job.gpus_min
    if job.array and (sampled := _sampled(job.array)):
        return _of_similar(job, sampled, attempts, live, gpus=gpus, now=now)
    found = DurationEstimator(history_of(read_ended_jobs()), read_model()).estimate(as_submitted(job, gpus))
    if found is None or tells_of_few(found):
        return None
    if before := read_stage_ratios(JobDependency.objects.filter(child=job)).get(job.pk):
        found = before.corrected(found)
    return _of_similar(job, found, attempts, live, gpus=gpus, now=now)


def tells_of_few(found: DurationEstimate) -> bool:
    """Whether the estimate would disclose the durations of a few jobs of other teams."""
    return found.basis == Basis.ALL and found.estimate.n < FEWEST_OF_ALL


def _sampled(array: JobArray) -> DurationEstimate | None:
    """Duration of a task, if enough of the array's have ended; not drawn towards history, which may be other teams'."""
    found = read_array_samples([array.pk]).get(array.pk)
    return duration_of(len(array.all_indices), found._replace(history=None)) if found else None


def _of_steps(job: Job, live: Attempt | None, forecast: DurationForecast | None) -> RemainingWork | None:
    """Steps left at the measured, else the expected rate; of a waiting job, as much of the forecast as is left."""
    work = job.work
    if work.own_steps_left is None or not work.total:
        return None
    if live is not None and (left_s := seconds_left(work, live)) is not None:
        seconds = left_s
    elif forecast is not None and forecast.submission_basis == Basis.DECLARED and forecast.submission_s is not None:
        seconds = forecast.submission_s * (1 - work.done / work.total)
    else:
        return None
    basis, says = (Basis.DECLARED, "declares") if job.steps_in_all == job.total_steps else (Basis.REPORTED, "reports")
    detail = f"from the steps it {says}{_at_what_rate(live)}"
    return RemainingWork(seconds, seconds, seconds, basis, 0, live is not None, detail)


def seconds_left(work: TrainingWork, attempt: Attempt) -> float | None:
    """Time for the steps that are left at the measured, else the expected rate; None: one of the two is not known.

    The measured rate counts steps of its present batch, the expected one those of the initial batch. Of an attempt
    whose present batch has one report only, the expected rate tells more than the mean over its batches, unless it is
    assumed.
    """
    if work.own_steps_left is None or work.left is None:
        return None
    expected = 0.0 if attempt.rate_source == Attempt.RateSource.ASSUMED else attempt.rate
    if not attempt.batch_rate and expected:
        return work.left / expected
    if rate := attempt.measured_rate:
        return work.own_steps_left / rate
    return work.left / attempt.rate if attempt.rate else None


def _at_what_rate(live: Attempt | None) -> str:
    """What is said of a rate that nothing is known of; empty for any other."""
    if live is None or live.measured_rate or live.rate_source != Attempt.RateSource.ASSUMED:
        return ""
    return " at an assumed rate: no rate of its workload is known before it reports progress"


def _of_similar(
    job: Job, found: DurationEstimate, attempts: Sequence[Attempt], live: Attempt | None, *, gpus: int, now: datetime
) -> RemainingWork:
    """Remaining work by similar jobs that ended; work is counted on the smallest gang of average GPUs."""
    worked_s = sum(attempt.ran_s(now) * _speed(attempt, gpus) for attempt in attempts)
    speed = _speed(live, gpus) if live else 1.0
    estimate = found.estimate
    return RemainingWork(
        seconds=estimate.mean_left(worked_s) / speed,
        least_seconds=estimate.quantile_left(LOW, worked_s) / speed,
        most_seconds=estimate.quantile_left(HIGH, worked_s) / speed,
        basis=found.basis,
        jobs=estimate.n,
        runs=live is not None,
        detail=f"from {ended_jobs(found, job.owner.get_username())}",
    )


def _speed(attempt: Attempt, gpus: int) -> float:
    """Speed of its gang; that of the smallest gang on average GPUs is 1."""
    return attempt.gpu_count * attempt.relative_speed / gpus


def ended_jobs(found: DurationEstimate, owner: str) -> str:
    """The ended jobs on which the estimate is based, as text."""
    n, basis = found.estimate.n, found.basis
    if basis == Basis.SAMPLED:
        return f"{n:,} task{'s' * (n != 1)} of its array"
    if basis == Basis.BOOSTED:
        return f"a model of {n:,} jobs that ended"
    if basis == Basis.STAGES:
        return f"similar jobs, and how the {n:,} stage{'s' * (n != 1)} before took longer or shorter than such"
    similar = "similar " if basis in (Basis.SIMILAR, Basis.SIMILAR_OF_TEAM) else ""
    whose = {Basis.SIMILAR_OF_TEAM: "the team", Basis.ALL: "all teams"}.get(basis, owner)
    return f"{n:,} {similar}job{'s' * (n != 1)} of {whose}"
