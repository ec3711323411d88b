"""Progress reports become rates: of the attempt, and of its workload on its kind of GPUs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from cluster_app.bulk import rewrite
from jobs_app.fields import LARGEST_BATCH, LARGEST_RATE
from jobs_app.models import Attempt, Job, JobEvent, Throughput
from jobs_app.noise import Gradients, learn_noise

MOST_BATCHES = 32
"""Of one gang of a workload: a program that says another with each report fills no table."""
MOST_REPORTS = 200
"""Weight of the past in a workload's mean rate: older reports fade, so that a changed program is noticed."""


@dataclass(frozen=True)
class Advance:
    """What an attempt's progress file says now."""

    attempt: int
    reports: int
    first_step: int
    first_at: datetime
    step: int
    at: datetime
    loss: float | None
    batch_size: int | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None


@transaction.atomic
def note_progress(advances: Iterable[Advance]) -> None:
    """Bring attempts, jobs and measured rates up to date, in a handful of queries, however many.

    An advance already known changes nothing.
    """
    by_attempt = {advance.attempt: advance for advance in advances}
    known = _known(by_attempt)
    fresh = [(before, by_attempt[before.pk]) for before in known if by_attempt[before.pk].reports > before.reports]
    _learn(fresh)
    learn_noise(_gradients(fresh))
    _write_jobs((attempt, advance) for attempt, advance in fresh if attempt.state != Attempt.State.ENDED)
    _write_attempts(fresh)  # after the jobs, as everywhere: who locks in another order may wait for ever


class Known(NamedTuple):
    """What is written of an attempt so far."""

    pk: int
    job: UUID
    team: int
    workload: str
    gpu_type: int
    gpu_count: int
    nodes: list[str]
    state: str
    reports: int
    step: int | None
    step_at: datetime | None
    batch_size: int
    """As it was told; 0: it was not."""


Fresh = Iterable[tuple[Known, Advance]]


def _known(pks: Iterable[int]) -> Iterator[Known]:
    """Columns, not model instances: thousands of jobs report at once."""
    fields = [{"team": "job__team", "workload": "job__workload"}.get(name, name) for name in Known._fields]
    rows = Attempt.objects.filter(pk__in=list(pks)).order_by("pk").values_list(*fields)
    return (Known(*row) for row in rows)


def _write_attempts(fresh: Fresh) -> None:
    fields = ("reports", "loss", "first_step", "first_step_at", "step", "step_at")
    rows = {old.pk: (now.reports, now.loss, now.first_step, now.first_at, now.step, now.at) for old, now in fresh}
    rewrite(Attempt, fields, rows)


def _write_jobs(fresh: Fresh) -> None:
    rewrite(Job, ("step", "step_at"), {old.job: (now.step, now.at) for old, now in fresh})


@transaction.atomic
def note_unreadable(lines: Mapping[int, int]) -> None:
    """Keep with each attempt how many of its progress lines could not be read; its job's history is told once."""
    if not lines:
        return
    attempts = Attempt.objects.filter(pk__in=lines)
    list(
        Job.objects.select_for_update().filter(attempts__in=attempts).order_by("pk").values_list("pk")
    )  # first, always
    fresh = attempts.filter(invalid_lines=0).values_list("pk", "job", "number")
    JobEvent.objects.bulk_create(
        JobEvent(job_id=job, kind=JobEvent.Kind.WARNING, message=_of_unreadable(lines[pk]), attempt=number)
        for pk, job, number in fresh
    )
    rewrite(Attempt, ("invalid_lines",), {pk: (count,) for pk, count in lines.items()})


def _of_unreadable(lines: int) -> str:
    what = f"{lines:,} progress lines" if lines > 1 else "A progress line"
    return f'{what} could not be read so far: each is one JSON object with an integer step, as {{"step": 10}}.'


class Place(NamedTuple):
    """Where a workload's rate is measured: the key of a `Throughput`."""

    team: int
    workload: str
    gpu_type: int
    gpus: int
    nodes: int
    batch_size: int


def _learn(fresh: Fresh) -> None:
    """Merge the rates since the last look into the workloads' means (West's incremental variance)."""
    news = list(_rates(fresh))
    known = _known_rates({place for place, _, _ in news})
    for place, rate, reports in news:
        if place in known:
            merge(known[place], rate=rate, reports=reports)
    old = {t.pk: (t.steps_per_second, t.spread, t.reports) for t in known.values() if t.pk}
    rewrite(Throughput, ("steps_per_second", "spread", "reports"), old)
    Throughput.objects.bulk_create([throughput for throughput in known.values() if not throughput.pk])


def _rates(fresh: Fresh) -> Iterator[tuple[Place, float, int]]:
    """Steps/s since the last look, and the reports behind it; what no declared rate may be is no measured one."""
    for attempt, advance in fresh:
        seconds = (advance.at - (attempt.step_at or advance.first_at)).total_seconds()
        steps = advance.step - (attempt.step if attempt.step is not None else advance.first_step)
        if seconds > 0 and 0 <= steps <= LARGEST_RATE * seconds:
            yield _place_of(attempt, advance), steps / seconds, advance.reports - attempt.reports


def _place_of(attempt: Known, advance: Advance) -> Place:
    where = (attempt.gpu_type, attempt.gpu_count, len(attempt.nodes))
    return Place(attempt.team, attempt.workload, *where, _batch_of(attempt, advance))


def _batch_of(attempt: Known, advance: Advance) -> int:
    """What it says, else what it was told; 0: nobody knows."""
    said = advance.batch_size or 0
    return said if 0 < said <= LARGEST_BATCH else attempt.batch_size


def _gradients(fresh: Fresh) -> Iterator[Gradients]:
    """What can be told of one sample's gradient: the variance over batches of M samples is one's by M."""
    for attempt, advance in fresh:
        batch, sqr, var = _batch_of(attempt, advance), advance.grad_sqr, advance.grad_var
        if batch and sqr is not None and var is not None and min(sqr, var) >= 0 < max(sqr, var):
            yield Gradients(attempt.team, attempt.workload, sqr, var * batch)


def _known_rates(places: AbstractSet[Place]) -> dict[Place, Throughput]:
    """Of each place what is known of it, or a blank to be filled in; but no more batches of one gang than are kept."""
    rows = Throughput.objects.filter(workload__in={place.workload for place in places})
    found = {Place(t.team_id, t.workload, t.gpu_type_id, t.gpus, t.nodes, t.batch_size): t for t in rows}
    batches = Counter(place[:-1] for place in found)
    known = {place: throughput for place, throughput in found.items() if place in places}
    for place in sorted(places - known.keys()):
        if batches[place[:-1]] < MOST_BATCHES:
            batches[place[:-1]] += 1
            known[place] = _blank(place)
    return known


def _blank(place: Place) -> Throughput:
    return Throughput(
        team_id=place.team,
        workload=place.workload,
        gpu_type_id=place.gpu_type,
        gpus=place.gpus,
        nodes=place.nodes,
        batch_size=place.batch_size,
        steps_per_second=0.0,
    )


def merge(known: Throughput, *, rate: float, reports: int) -> None:
    """Weigh a new rate by the reports behind it."""
    old = min(known.reports, MOST_REPORTS)
    share = reports / (old + reports)
    delta = rate - known.steps_per_second
    variance = (1 - share) * (known.spread**2 + share * delta**2) if old else 0.0
    known.steps_per_second += share * delta
    known.spread, known.reports = sqrt(variance), known.reports + reports
