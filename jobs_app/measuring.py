"""Progress reports become rates: of the attempt, and of its workload on its kind of GPUs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from cluster_app.bulk import rewrite
from jobs_app.fields import LARGEST_RATE
from jobs_app.models import Attempt, Job, JobEvent, Throughput

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


@transaction.atomic
def note_progress(advances: Iterable[Advance]) -> None:
    """Bring attempts, jobs and measured rates up to date, in a handful of queries, however many.

    An advance already known changes nothing.
    """
    by_attempt = {advance.attempt: advance for advance in advances}
    known = _known(by_attempt)
    fresh = [(before, by_attempt[before.pk]) for before in known if by_attempt[before.pk].reports > before.reports]
    _learn(fresh)
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


def _learn(fresh: Fresh) -> None:
    """Merge the rates since the last look into the workloads' means (West's incremental variance)."""
    news = [(_place_of(attempt), rate, reports) for attempt, rate, reports in _rates(fresh)]
    known = _known_rates({place for place, _, _ in news})
    for place, rate, reports in news:
        merge(known[place], rate=rate, reports=reports)
    old = {t.pk: (t.steps_per_second, t.spread, t.reports) for t in known.values() if t.pk}
    rewrite(Throughput, ("steps_per_second", "spread", "reports"), old)
    Throughput.objects.bulk_create([throughput for throughput in known.values() if not throughput.pk])


def _rates(fresh: Fresh) -> Iterator[tuple[Known, float, int]]:
    """Steps/s since the last look, and the reports behind it; what no declared rate may be is no measured one."""
    for attempt, advance in fresh:
        seconds = (advance.at - (attempt.step_at or advance.first_at)).total_seconds()
        steps = advance.step - (attempt.step if attempt.step is not None else advance.first_step)
        if seconds > 0 and 0 <= steps <= LARGEST_RATE * seconds:
            yield attempt, steps / seconds, advance.reports - attempt.reports


def _place_of(attempt: Known) -> Place:
    return Place(attempt.team, attempt.workload, attempt.gpu_type, attempt.gpu_count, len(attempt.nodes))


def _known_rates(places: Collection[Place]) -> dict[Place, Throughput]:
    """Of each place what is known of it, or a blank to be filled in."""
    blank = {place: _blank(place) for place in sorted(places)}
    rows = Throughput.objects.filter(workload__in={place.workload for place in places})
    found = {Place(t.team_id, t.workload, t.gpu_type_id, t.gpus, t.nodes): t for t in rows}
    return blank | {place: throughput for place, throughput in found.items() if place in places}


def _blank(place: Place) -> Throughput:
    return Throughput(
        team_id=place.team,
        workload=place.workload,
        gpu_type_id=place.gpu_type,
        gpus=place.gpus,
        nodes=place.nodes,
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
