"""Progress reports become rates: of the attempt, and of its workload on its kind of GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import sqrt

from django.db import transaction

from jobs_app.models import Attempt, Job, Throughput

MOST_REPORTS = 200
"""Weight of the past in a workload's mean rate: older reports fade, so that a changed program is noticed."""


@dataclass(frozen=True)
class Advance:
    """What an attempt's progress file says now."""

    attempt: Attempt
    reports: int
    first_step: int
    first_at: datetime
    step: int
    at: datetime
    loss: float | None


def note_progress(advances: Iterable[Advance]) -> None:
    """Bring attempts, jobs and measured rates up to date; an advance already known changes nothing."""
    fresh = [advance for advance in advances if advance.reports > advance.attempt.reports]
    if not fresh:
        return
    with transaction.atomic():
        for advance in fresh:
            _learn(advance)
        _write_jobs(advance for advance in fresh if advance.attempt.state != Attempt.State.ENDED)
        _write_attempts(fresh)  # after the jobs, as everywhere: who locks in another order may wait for ever


def _write_attempts(fresh: Iterable[Advance]) -> None:
    attempts = [advance.attempt for advance in fresh]
    for advance in fresh:
        attempt = advance.attempt
        attempt.reports, attempt.loss = advance.reports, advance.loss
        attempt.first_step, attempt.first_step_at = advance.first_step, advance.first_at
        attempt.step, attempt.step_at = advance.step, advance.at
    fields = ["reports", "loss", "first_step", "first_step_at", "step", "step_at"]
    Attempt.objects.bulk_update(attempts, fields, batch_size=200)


def _write_jobs(fresh: Iterable[Advance]) -> None:
    jobs = [Job(pk=advance.attempt.job_id, step=advance.step, step_at=advance.at) for advance in fresh]
    Job.objects.bulk_update(jobs, ["step", "step_at"], batch_size=200)


def _learn(advance: Advance) -> None:
    """Merge the rate since the last look into the workload's mean (West's incremental variance)."""
    attempt = advance.attempt
    seconds = (advance.at - (attempt.step_at or advance.first_at)).total_seconds()
    steps = advance.step - (attempt.step if attempt.step is not None else advance.first_step)
    if seconds <= 0 or steps < 0:
        return
    known, _ = Throughput.objects.get_or_create(
        team=attempt.job.team,
        workload=attempt.job.workload,
        gpu_type=attempt.gpu_type,
        gpus=attempt.gpu_count,
        nodes=len(attempt.nodes),
        defaults={"steps_per_second": 0.0},
    )
    merge(known, rate=steps / seconds, reports=advance.reports - attempt.reports)
    known.save()


def merge(known: Throughput, *, rate: float, reports: int) -> None:
    """Weigh a new rate by the reports behind it."""
    old = min(known.reports, MOST_REPORTS)
    share = reports / (old + reports)
    delta = rate - known.steps_per_second
    variance = (1 - share) * (known.spread**2 + share * delta**2) if old else 0.0
    known.steps_per_second += share * delta
    known.spread, known.reports = sqrt(variance), known.reports + reports
