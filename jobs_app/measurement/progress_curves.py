"""Progress curves: points of progress reports, thinned by halving so that a job has a limited number of them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from jobs_app.models import ProgressCurve

MOST_POINTS = 500
FIRST_SPACING_S = 2.0


class CurvePoint(NamedTuple):
    """Progress that a job reported."""

    at: datetime
    step: int
    loss: float | None
    metrics: Mapping[str, float] = {}


class PointOfTime(NamedTuple):
    """A point of a chart; `rate`: steps/s since the point before, None where the job was not running in between."""

    at: datetime
    step: int
    loss: float | None
    metrics: Mapping[str, float]
    rate: float | None


def note_points(points: Mapping[UUID, CurvePoint]) -> None:
    """Add points to the curves of these jobs, where enough time has passed since the last. In a transaction."""
    stored = ProgressCurve.objects.select_for_update().filter(job__in=points).order_by("pk")
    known = {job: (spacing_s, last_at) for job, spacing_s, last_at in stored.values_list("job", "spacing_s", "last_at")}
    insert_many(ProgressCurve, [_first_row(job, point) for job, point in points.items() if job not in known])
    due = [
        job for job, (spacing_s, last_at) in known.items() if points[job].at >= last_at + timedelta(seconds=spacing_s)
    ]
    rows = ProgressCurve.objects.filter(job__in=due).values_list("job", "spacing_s", "points") if due else ()
    rewrite(
        ProgressCurve,
        ("spacing_s", "last_at", "points"),
        {job: _with_point(spacing_s, before, points[job]) for job, spacing_s, before in rows},
    )


def _first_row(job: UUID, point: CurvePoint) -> dict[str, Any]:
    return {"job_id": job, "spacing_s": FIRST_SPACING_S, "last_at": point.at, "points": [_as_json(point)]}


def _with_point(spacing_s: float, before: Sequence[Any], point: CurvePoint) -> tuple[float, datetime, list[Any]]:
    thinned, spacing_s = thin([*before, _as_json(point)], spacing_s)
    return spacing_s, point.at, thinned


def thin(points: list[Any], spacing_s: float) -> tuple[list[Any], float]:
    """Every second point and the last, at twice the spacing, if there are too many."""
    if len(points) <= MOST_POINTS:
        return points, spacing_s
    return [*points[:-1:2], points[-1]], 2 * spacing_s


def _as_json(point: CurvePoint) -> list[Any]:
    plain = [int(1000 * point.at.timestamp()), point.step, point.loss]
    return [*plain, dict(point.metrics)] if point.metrics else plain


def note_metrics(values: Mapping[UUID, tuple[Mapping[str, float], Mapping[str, float]]]) -> None:
    """Store the last value of each metric of a job's own, and its milestones, of which the first attempt's count."""
    given = {job: both for job, both in values.items() if any(both)}
    if not given:
        return
    stored = ProgressCurve.objects.filter(job__in=given).values_list("job", "metrics", "milestones")
    rewrite(
        ProgressCurve,
        ("metrics", "milestones"),
        {job: ({**metrics, **given[job][0]}, {**given[job][1], **milestones}) for job, metrics, milestones in stored},
    )


def read_curve(job: UUID) -> list[PointOfTime]:
    """The points of a job, with the rate between each two."""
    return read_curves([job]).get(job, [])


def read_curves(jobs: Iterable[UUID]) -> dict[UUID, list[PointOfTime]]:
    """The points of each job that has some, with the rate between each two; one query."""
    stored = ProgressCurve.objects.filter(job__in=list(jobs)).values_list("job", "points")
    return {
        job: list(with_rates([CurvePoint(datetime.fromtimestamp(ms / 1000, UTC), *rest) for ms, *rest in points]))
        for job, points in stored
    }


def with_rates(points: Sequence[CurvePoint]) -> Iterable[PointOfTime]:
    """Rates between points; none where steps went back, as after a restart from a checkpoint."""
    if points:
        yield PointOfTime(*points[0], rate=None)
    for before, point in pairwise(points):
        seconds, steps = (point.at - before.at).total_seconds(), point.step - before.step
        yield PointOfTime(*point, rate=steps / seconds if seconds > 0 and steps >= 0 else None)
