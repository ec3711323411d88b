"""Forecast probabilities of meeting deadlines: kept as shown, completed with the outcome, and evaluated."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from database.bulk_update import rewrite
from forecast.deadlines import Calibration, Outcome
from insight_app.models import DeadlineForecast
from insight_app.start_forecasts.forecast_store import ROWS_PER_BATCH, Ending
from jobs_app.models import Job

MOST_OUTCOMES = 2_000
"""Newest outcomes by which they are judged."""


class OpenDeadline(NamedTuple):
    """A kept probability whose outcome is not known yet."""

    pk: int
    job: UUID
    deadline: datetime


class KnownOutcome(NamedTuple):
    """Whether the deadline was met, and since when that is known."""

    met: bool
    known_at: datetime


def outcomes_of_deadlines(
    kept: Iterable[OpenDeadline], jobs: Mapping[UUID, Ending], now: datetime
) -> tuple[dict[int, KnownOutcome], list[int]]:
    """Outcomes that are known now, by the forecast's key, and the keys of those that will never be known. Pure."""
    known, never = dict[int, KnownOutcome](), list[int]()
    for one in kept:
        ending = jobs.get(one.job)
        found = _outcome(one.deadline, ending, now) if ending else None
        if found is not None:
            known[one.pk] = found
        elif ending is None or ending.finished_at is not None:
            never.append(one.pk)
    return known, never


def _outcome(deadline: datetime, ending: Ending, now: datetime) -> KnownOutcome | None:
    """A job that ends after the deadline, however it ends, has not met it; nor one stopped by its time limit."""
    ended_at = ending.finished_at
    if ended_at is None or ended_at > deadline:
        return KnownOutcome(met=False, known_at=deadline) if now > deadline else None
    if ending.state in (Job.State.SUCCEEDED, Job.State.TIMED_OUT):
        return KnownOutcome(met=ending.state == Job.State.SUCCEEDED, known_at=ended_at)
    return None


def close_deadlines(now: datetime) -> None:
    """Record which deadlines were met, and delete forecasts whose outcome will never be known, in batches."""
    still_open = DeadlineForecast.objects.filter(known_at=None).order_by("pk")
    kept = [OpenDeadline(*row) for row in still_open.values_list(*OpenDeadline._fields)]
    jobs = Job.objects.filter(pk__in=still_open.order_by().values("job")) if kept else Job.objects.none()
    endings = {pk: Ending(*row) for pk, *row in jobs.values_list("pk", *Ending._fields)}
    known, never = outcomes_of_deadlines(kept, endings, now)
    rewrite(DeadlineForecast, KnownOutcome._fields, dict(known))
    for first in range(0, len(never), ROWS_PER_BATCH):
        DeadlineForecast.objects.filter(pk__in=never[first : first + ROWS_PER_BATCH]).delete()


def judge_deadlines() -> Calibration | None:
    """Calibration of the newest probabilities, in one query; None: no outcome is known."""
    known = DeadlineForecast.objects.filter(known_at__isnull=False).order_by("-known_at", "-pk")
    newest = known.values_list("in_time", "met")[:MOST_OUTCOMES]
    return Calibration.of(Outcome(in_time, bool(met)) for in_time, met in newest)
