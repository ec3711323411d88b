"""Store of forecasts of durations: recorded by rounds, completed with the true durations when jobs end."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Avg, F

from accounting_app.models import DurationForecast
from accounting_app.models.durations import OF_ENDED_TASK
from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from estimation.durations import DurationEstimate
from jobs_app.models import Attempt, Job

FIGURES = ("s", "spread", "basis", "n")


class MadeForecast(NamedTuple):
    """Forecast of a job's duration, made by a round."""

    job: UUID
    owner_id: int
    team_id: int
    array_id: UUID | None
    name: str
    gpus: int
    gpu_types: str
    time_limit_s: int | None
    duration: DurationEstimate | None
    placed_before: bool
    """Whether an earlier round gave it GPUs: it is too late for a forecast at its submission."""
    starts: bool
    """Whether this round is the first to do so."""


@transaction.atomic
def record_forecasts(made: Iterable[MadeForecast], known: Collection[UUID]) -> None:
    """Record forecasts of jobs that are new, and of those that start; `known` are the jobs that have a row."""
    listed = list(made)
    insert_many(DurationForecast, [_row(one) for one in listed if one.job not in known])
    starting = {one.job: one.duration for one in listed if one.job in known and one.starts}
    rows = {job: tuple(_figures("start", duration).values()) for job, duration in starting.items() if duration}
    rewrite(DurationForecast, [f"start_{name}" for name in FIGURES], rows)


def _row(one: MadeForecast) -> dict[str, Any]:
    at_submission = None if one.placed_before else one.duration
    return {
        "job": one.job,
        "owner_id": one.owner_id,
        "team_id": one.team_id,
        "array": one.array_id,
        "name": one.name,
        "gpus": one.gpus,
        "gpu_types": one.gpu_types,
        "time_limit_s": one.time_limit_s,
        **_figures("submission", at_submission),
        **_figures("start", one.duration if one.starts else None),
    }


def _figures(moment: str, duration: DurationEstimate | None) -> dict[str, Any]:
    if duration is None:
        return {}
    estimate = duration.estimate
    figures = (estimate.mean, estimate.spread, duration.basis.value, estimate.n)
    return {f"{moment}_{name}": figure for name, figure in zip(FIGURES, figures, strict=True)}


@transaction.atomic
def close_forecasts(jobs: Collection[UUID]) -> None:
    """Complete the forecasts of those of these jobs that succeeded; drop those of jobs that ended otherwise.

    How long a job would have taken that failed or was cancelled is not known.
    """
    if not jobs:
        return
    unfinished = set(Job.objects.unfinished().filter(pk__in=jobs).values_list("pk", flat=True))
    succeeded = Job.objects.filter(pk__in=jobs, state=Job.State.SUCCEEDED)
    ended = dict(succeeded.values_list("pk", "finished_at"))
    seconds = _durations_s(list(ended))
    rewrite(DurationForecast, ("seconds", "ended_at"), {job: (seconds[job], ended[job]) for job in ended})
    _average_arrays(ended)
    DurationForecast.objects.filter(pk__in=set(jobs) - unfinished - ended.keys()).delete()


def _average_arrays(ended: Collection[UUID]) -> None:
    """Store the mean over the tasks that ended of each array with tasks among these, on the first that did.

    Computed from all tasks each time: that is idempotent, and a task's end reads its own array alone.
    """
    tasks = DurationForecast.objects.filter(OF_ENDED_TASK).order_by("ended_at", "pk")
    first = {array: pk for pk, array in tasks.filter(pk__in=ended).values_list("pk", "array").reverse()}
    first |= dict(tasks.filter(array__in=first, array_mean_s__isnull=False).values_list("array", "pk"))
    means = tasks.filter(array__in=first).order_by().values_list("array").annotate(Avg("seconds"))
    rewrite(DurationForecast, ("array_mean_s",), {first[array]: (mean,) for array, mean in means})


def _durations_s(jobs: Sequence[UUID]) -> dict[UUID, float]:
    """Seconds that each job's attempts would have taken on its smallest gang of average GPUs."""
    gpus = dict(DurationForecast.objects.filter(pk__in=jobs).values_list("job", "gpus"))
    ran = Attempt.objects.filter(job__in=jobs, started_at__isnull=False, ended_at__isnull=False)
    speed = F("gpu_count") * F("relative_speed")
    seconds: dict[UUID, float] = defaultdict(float)
    for job, start, end, of_average in ran.values_list("job", "started_at", "ended_at", speed):
        seconds[job] += max((end - start).total_seconds(), 0.0) * of_average / gpus[job]
    return seconds
