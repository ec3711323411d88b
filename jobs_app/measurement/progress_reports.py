"""Progress reports of attempts: they update attempts, jobs, and the measured rates and noise of workloads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from database.bulk_update import rewrite
from jobs_app.measurement.checkpoint_history import MadeCheckpoint, note_checkpoints
from jobs_app.measurement.fading_means import RateKey, RateNews, learn_cpu_rates, learn_rates
from jobs_app.measurement.gradient_noise import Gradients, learn_noise
from jobs_app.measurement.progress_curves import CurvePoint, MetricPoint, note_milestones, note_points
from jobs_app.measurement.training_progress import WorkReport, worth_done
from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.submission.fields import LARGEST_BATCH, LARGEST_RATE

MOST_LINKS = 10
"""Of a job over all its attempts."""


@dataclass(frozen=True)
class ProgressDelta:
    """Present summary of an attempt's progress file."""

    attempt: int
    reports: int
    first_step: int
    first_at: datetime
    step: int
    at: datetime
    loss: float | None
    batch_size: int | None = None
    total_steps: int | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    checkpoint_s: float | None = None
    checkpoint_at: datetime | None = None
    checkpoint_step: int | None = None
    restore_s: float | None = None
    restored_at: datetime | None = None
    metrics: Mapping[str, MetricPoint] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    milestones: Mapping[str, float | None] = field(default_factory=dict)


@transaction.atomic
def note_progress(advances: Iterable[ProgressDelta]) -> None:
    """Update attempts, jobs and measured rates in bulk. Idempotent: a stored advance changes nothing."""
    by_attempt = {advance.attempt: advance for advance in advances}
    known = _stored_progress(by_attempt)
    fresh = [(before, by_attempt[before.pk]) for before in known if by_attempt[before.pk].reports > before.reports]
    news = list(_rates(fresh))
    learn_rates(news)
    learn_cpu_rates(news)
    gradients = list(_gradients(fresh))
    learn_noise(one for _, one in gradients)
    going_on = [(attempt, advance) for attempt, advance in fresh if attempt.state != Attempt.State.ENDED]
    _write_jobs(going_on)
    noises = {job: (scale, one.batch) for job, one in gradients if (scale := one.noise_scale) is not None}
    works = [_work(before, now, noises) for before, now in going_on if before.limits]
    worth = worth_done([one for one in works if one.can_be_summed])
    rewrite(Job, ("worth_done",), {job: (done.steps,) for job, done in worth.items()})
    rewrite(Job, ("noise_scale", "noise_batch"), noises)
    rewrite(Job, ("noise_batch",), {one.job: (one.batch,) for one in works if one.batch and one.job not in noises})
    note_points(
        {before.job: CurvePoint(advance.at, advance.step, advance.loss, advance.metrics) for before, advance in fresh}
    )
    note_milestones({before.job: advance.milestones for before, advance in fresh if advance.milestones})
    made = {before.job: one for before, advance in fresh if (one := _checkpoint(before, advance))}
    note_checkpoints(
        {job: one._replace(worth=worth[job].at_checkpoint) if job in worth else one for job, one in made.items()}
    )
    _write_attempts(fresh)  # after the jobs, as everywhere: another lock order could deadlock


class StoredProgress(NamedTuple):
    """Progress of an attempt as it is stored."""

    pk: int
    job: UUID
    team: int
    workload: str
    gpu_type: int
    gpu_count: int
    nodes: list[str]
    cpus_per_gpu: int
    """As Motley set them; 0: it did not."""
    state: str
    reports: int
    first_step: int | None
    first_step_at: datetime | None
    step: int | None
    step_at: datetime | None
    batch_size: int
    """As Motley set it; 0: it did not."""
    reported_batch: int
    batch_changes: int
    batch_step: int | None
    batch_step_at: datetime | None
    number: int
    checkpoint_at: datetime | None
    links: dict[str, str]
    """Of its job."""
    limits: dict[str, int]
    """Of its job's batch; empty: it is not tuned."""
    job_step: int
    worth_done: float | None
    noise_scale: float | None
    """Of its job."""


OF_JOB = {
    **{name: f"job__{name}" for name in ("team", "workload", "links", "worth_done", "noise_scale")},
    "limits": "job__batch_size",
    "job_step": "job__step",
}
"""Where columns of the job are found."""

Fresh = Iterable[tuple[StoredProgress, ProgressDelta]]


def _stored_progress(pks: Iterable[int]) -> Iterator[StoredProgress]:
    """Read columns instead of model instances: thousands of jobs report at once."""
    fields = [OF_JOB.get(name, name) for name in StoredProgress._fields]
    rows = Attempt.objects.filter(pk__in=list(pks)).order_by("pk").values_list(*fields)
    return (StoredProgress(*row) for row in rows)


def _checkpoint(before: StoredProgress, now: ProgressDelta) -> MadeCheckpoint | None:
    """The checkpoint of the report, if it is a new one."""
    if now.checkpoint_at is None or now.checkpoint_at == before.checkpoint_at:
        return None
    return MadeCheckpoint(now.checkpoint_at, _checkpoint_step(now), now.checkpoint_s, before.number, now.loss)


def _checkpoint_step(now: ProgressDelta) -> int:
    return now.step if now.checkpoint_step is None else now.checkpoint_step  # an older agent does not tell it


def _work(before: StoredProgress, now: ProgressDelta, noises: Mapping[UUID, tuple[float, int]]) -> WorkReport:
    """What the report says of the work of a job whose batch is tuned, by the noise that is known with it."""
    return WorkReport(
        job=before.job,
        limits=before.limits,
        before=before.job_step,
        worth_done=before.worth_done,
        noise_scale=noises[before.job][0] if before.job in noises else before.noise_scale,
        batch=_batch_of(before, now),
        begins=now.first_step if before.step is None else None,
        step=now.step,
        checkpoint=_checkpoint_step(now) if _checkpoint(before, now) else None,
    )


def _write_attempts(fresh: Fresh) -> None:
    fields = (
        *("reports", "loss", "first_step", "first_step_at", "step", "step_at", "checkpoint_s", "checkpoint_at"),
        *("reported_batch", "batch_changes", "batch_step", "batch_step_at"),
    )
    rows = {
        old.pk: (
            *(now.reports, now.loss, now.first_step, now.first_at, now.step, now.at),
            *(now.checkpoint_s, now.checkpoint_at),
            *(_batch_of(old, now), old.batch_changes + _has_changed(old, now)),
            *((now.step, now.at) if _has_changed(old, now) else (old.batch_step, old.batch_step_at)),
        )
        for old, now in fresh
    }
    rewrite(Attempt, fields, rows)
    restores = {old.pk: (now.restore_s, now.restored_at) for old, now in fresh if old.step is None and now.restored_at}
    rewrite(Attempt, ("restore_s", "restored_at"), restores)


def _write_jobs(fresh: Fresh) -> None:
    listed = list(fresh)
    rewrite(Job, ("step", "step_at"), {old.job: (now.step, now.at) for old, now in listed})
    links = {old.job: _joined(old.links, now.links) for old, now in listed if now.links.items() - old.links.items()}
    rewrite(Job, ("links",), {job: (told,) for job, told in links.items()})
    rewrite(Job, ("reported_total_steps",), {old.job: (now.total_steps,) for old, now in listed if now.total_steps})


def _joined(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """The links of a job, those of the present attempt last; of too many the oldest go."""
    kept = {name: address for name, address in before.items() if name not in now} | now
    return dict([*kept.items()][-MOST_LINKS:])


@transaction.atomic
def record_unreadable_lines(lines: Mapping[int, int]) -> None:
    """Store how many progress lines of each attempt could not be read; the job's history gets one warning."""
    if not lines:
        return
    attempts = Attempt.objects.filter(pk__in=lines)
    list(
        Job.objects.select_for_update().filter(attempts__in=attempts).order_by("pk").values_list("pk")
    )  # jobs first: lock order
    fresh = attempts.filter(invalid_lines=0).values_list("pk", "job", "number")
    JobEvent.objects.bulk_create(
        JobEvent(job_id=job, kind=JobEvent.Kind.WARNING, message=_of_unreadable(lines[pk]), attempt=number)
        for pk, job, number in fresh
    )
    rewrite(Attempt, ("invalid_lines",), {pk: (count,) for pk, count in lines.items()})


def _of_unreadable(lines: int) -> str:
    what = f"{lines:,} progress lines" if lines > 1 else "A progress line"
    return f'{what} could not be read. Each must be a JSON object with an integer step, e.g. {{"step": 10}}.'


def _rates(fresh: Fresh) -> Iterator[RateNews]:
    """Rates since the last stored report; implausible ones, and those of two batches, are dropped."""
    for attempt, advance in fresh:
        if _has_changed(attempt, advance):
            continue
        seconds = (advance.at - (attempt.step_at or advance.first_at)).total_seconds()
        steps = advance.step - (attempt.step if attempt.step is not None else advance.first_step)
        if seconds > 0 and 0 <= steps <= LARGEST_RATE * seconds:
            reports = advance.reports - attempt.reports
            yield RateNews(_key_of(attempt, advance), steps / seconds, reports, *_rates_of_run(attempt, advance))


def _rates_of_run(attempt: StoredProgress, advance: ProgressDelta) -> tuple[float | None, float | None]:
    """Rate of the whole attempt in steps/s, now and at the report before; none of one with several batches."""
    if attempt.batch_changes:
        return None, None
    now = _rate_between(advance.first_step, advance.first_at, advance.step, advance.at)
    before = _rate_between(attempt.first_step, attempt.first_step_at, attempt.step, attempt.step_at)
    return now, before


def _rate_between(first: int | None, began: datetime | None, last: int | None, at: datetime | None) -> float | None:
    if first is None or began is None or last is None or at is None or at <= began or last <= first:
        return None
    return (last - first) / (at - began).total_seconds()


def _key_of(attempt: StoredProgress, advance: ProgressDelta) -> RateKey:
    gang = (attempt.gpu_type, attempt.gpu_count, len(attempt.nodes))
    return RateKey(attempt.team, attempt.workload, *gang, _batch_of(attempt, advance), attempt.cpus_per_gpu)


def _batch_of(attempt: StoredProgress, advance: ProgressDelta) -> int:
    """Batch size: as reported, else as Motley set it; 0 if unknown."""
    said = advance.batch_size or 0
    return said if 0 < said <= LARGEST_BATCH else attempt.batch_size


def _has_changed(attempt: StoredProgress, advance: ProgressDelta) -> bool:
    """Whether its batch is another one than at the last report."""
    return attempt.reported_batch not in {0, _batch_of(attempt, advance)}


def _gradients(fresh: Fresh) -> Iterator[tuple[UUID, Gradients]]:
    """What they report of their gradients, with the job of each."""
    for attempt, advance in fresh:
        batch, sqr, var = _batch_of(attempt, advance), advance.grad_sqr, advance.grad_var
        if gradients := Gradients.of_batch(attempt.team, attempt.workload, batch, sqr, var):
            yield attempt.job, gradients
