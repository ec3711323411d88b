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
LAST = "last"
"""Beside the steps of milestones: the last value of their metric."""
FIRST_SPACING_S = 2.0


MetricPoint = tuple[int, float]
"""Step and value of a named metric."""


class CurvePoint(NamedTuple):
    """Progress that a job reported; `metrics`: the last value of each so far, of a stored point those that are new."""

    at: datetime
    step: int
    loss: float | None
    metrics: Mapping[str, MetricPoint] = {}


class PointOfTime(NamedTuple):
    """A point of a chart; `rate`: steps/s since the point before, None where the job was not running in between."""

    at: datetime
    step: int
    loss: float | None
    metrics: Mapping[str, MetricPoint]
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


def note_milestones(values: Mapping[UUID, Mapping[str, float | None]]) -> None:
    """Store the values at milestones, of which the first attempt's count, and the last one. After `note_points`."""
    stored = ProgressCurve.objects.filter(job__in=values).values_list("job", "milestones") if values else ()
    rows = {job: ({**values[job], **before, LAST: values[job][LAST]},) for job, before in stored}
    rewrite(ProgressCurve, ("milestones",), rows)


def _first_row(job: UUID, point: CurvePoint) -> dict[str, Any]:
    return {"job_id": job, "spacing_s": FIRST_SPACING_S, "last_at": point.at, "points": [_as_json(point)]}


def _with_point(spacing_s: float, before: Sequence[Any], point: CurvePoint) -> tuple[float, datetime, list[Any]]:
    known = {name: tuple(metric) for one in before for name, metric in _metrics_in(one).items()}
    news = {name: metric for name, metric in point.metrics.items() if known.get(name) != metric}
    thinned, spacing_s = thin([*before, _as_json(point._replace(metrics=news))], spacing_s)
    return spacing_s, point.at, thinned


def thin(points: list[Any], spacing_s: float) -> tuple[list[Any], float]:
    """Every second point and the last, at twice the spacing, if there are too many.

    The next point takes over metrics of one that is dropped: an evaluation after each epoch has few points.
    """
    if len(points) <= MOST_POINTS:
        return points, spacing_s
    places = [*range(0, len(points) - 1, 2), len(points) - 1]
    dropped = ([], *(points[start + 1 : end] for start, end in pairwise(places)))
    return [_taken_over(some, points[n]) for some, n in zip(dropped, places, strict=True)], 2 * spacing_s


def _taken_over(dropped: Sequence[list[Any]], kept: list[Any]) -> list[Any]:
    metrics = {name: metric for point in (*dropped, kept) for name, metric in _metrics_in(point).items()}
    return [*kept[:3], metrics] if metrics else kept


def _metrics_in(point: Sequence[Any]) -> dict[str, Any]:
    return dict(point[3]) if len(point) > 3 else {}


def _as_json(point: CurvePoint) -> list[Any]:
    metrics = {name: list(metric) for name, metric in point.metrics.items()}
    return [int(1000 * point.at.timestamp()), point.step, point.loss, *([metrics] if metrics else [])]


def _of_json(point: Sequence[Any]) -> CurvePoint:
    metrics = {name: (step, value) for name, (step, value) in _metrics_in(point).items()}
    return CurvePoint(datetime.fromtimestamp(point[0] / 1000, UTC), point[1], point[2], metrics)


def read_curve(job: UUID) -> list[PointOfTime]:
    """The points of a job, with the rate between each two."""
    return read_curves([job]).get(job, [])


def read_curves(jobs: Iterable[UUID]) -> dict[UUID, list[PointOfTime]]:
    """The points of each job that has some, with the rate between each two; one query."""
    stored = ProgressCurve.objects.filter(job__in=list(jobs)).values_list("job", "points")
    return {job: list(with_rates([_of_json(point) for point in points])) for job, points in stored}


def read_metric(jobs: Iterable[UUID], name: str, most: int) -> dict[UUID, list[MetricPoint]]:
    """Steps and values of one metric, at most so many of each job, evenly chosen; one query."""
    stored = ProgressCurve.objects.filter(job__in=list(jobs)).values_list("job", "points")
    return {job: _thinned([*_of_metric(points, name)], most) for job, points in stored}


def _of_metric(points: Iterable[Sequence[Any]], name: str) -> Iterable[MetricPoint]:
    for point in points:
        if name in (told := _metrics_in(point)):
            step, value = told[name]
            yield step, value
        elif name == "loss" and point[2] is not None:
            yield point[1], point[2]


def _thinned(points: list[MetricPoint], most: int) -> list[MetricPoint]:
    """Every n-th point, and the last."""
    every = -(-len(points) // most) or 1
    return points[(len(points) - 1) % every :: every]


def with_rates(points: Sequence[CurvePoint]) -> Iterable[PointOfTime]:
    """Rates between points; none where steps went back, as after a restart from a checkpoint."""
    if points:
        yield PointOfTime(*points[0], rate=None)
    for before, point in pairwise(points):
        seconds, steps = (point.at - before.at).total_seconds(), point.step - before.step
        yield PointOfTime(*point, rate=steps / seconds if seconds > 0 and steps >= 0 else None)


def last_metrics(points: Iterable[PointOfTime]) -> dict[str, MetricPoint]:
    """Step and value of each named metric as it was reported last, by name."""
    last = {name: metric for point in points for name, metric in point.metrics.items()}
    return dict(sorted(last.items()))
