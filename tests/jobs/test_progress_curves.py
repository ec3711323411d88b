"""Progress of a job over time: a limited number of points in one row, however many reports it makes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs_app.measurement import progress_curves
from jobs_app.measurement.progress_curves import CurvePoint, last_metrics, note_points, read_curve
from jobs_app.models import Job, ProgressCurve
from tests.service_lab import Lab

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def point(seconds: float, step: int, loss: float | None = None) -> CurvePoint:
    return CurvePoint(NOON + timedelta(seconds=seconds), step, loss)


@pytest.fixture
def job(lab: Lab) -> Job:
    lab.node("n1")
    return lab.submit()


def test_points_are_kept_with_the_rate_between_them(job: Job) -> None:
    for at_s, step, loss in [(0, 0, 2.5), (1, 9, 2.4), (10, 50, 2.0), (20, 40, None), (30, 60, 1.0)]:
        note_points({job.pk: point(at_s, step, loss)})
    found = [(one.step, one.loss, one.rate) for one in read_curve(job.pk)]
    assert found == [(0, 2.5, None), (50, 2.0, 5.0), (40, None, None), (60, 1.0, 2.0)]


def test_a_curve_has_one_row_and_at_most_so_many_points(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(progress_curves, "MOST_POINTS", most)
    for n in range(3 * most):
        note_points({job.pk: point(3 * n, n)})
    points = read_curve(job.pk)
    assert ProgressCurve.objects.count() == 1
    assert most / 3 < len(points) <= most
    assert points[0].step == 0
    gaps = {after.step - before.step for before, after in pairwise(points)}
    assert max(gaps) <= 4 * min(gaps)


def test_more_jobs_take_no_more_queries(job: Job, lab: Lab) -> None:
    def queries(of: list[Job], at_s: float) -> int:
        with CaptureQueriesContext(connection) as told:
            note_points({one.pk: point(at_s, 1) for one in of})
        return sum("SELECT" in query["sql"] for query in told)

    several = [job, *(lab.submit() for _ in range(3))]
    note_points({one.pk: point(0, 0) for one in several})
    assert queries([job], 10) == queries(several, 20)


def test_a_named_metric_has_a_value_each_time_that_it_is_new(job: Job) -> None:
    def report(seconds: float, step: int, **metrics: tuple[int, float]) -> None:
        note_points({job.pk: point(seconds, step)._replace(metrics=metrics)})

    report(0, 10)
    report(1, 10, val=(10, 0.5))  # too soon for a point of its own
    report(10, 20, val=(10, 0.5), lr=(20, 0.1))
    report(20, 30, val=(10, 0.5), lr=(20, 0.1))
    report(30, 40, val=(40, 0.7), lr=(40, 0.1))
    found = [(one.step, dict(one.metrics)) for one in read_curve(job.pk)]
    assert found == [
        (10, {}),
        (20, {"val": (10, 0.5), "lr": (20, 0.1)}),
        (30, {}),
        (40, {"val": (40, 0.7), "lr": (40, 0.1)}),
    ]
    assert last_metrics(read_curve(job.pk)) == {"lr": (40, 0.1), "val": (40, 0.7)}


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_a_thinned_curve_loses_no_last_value(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_curves, "MOST_POINTS", 2)
    points = [[n, n, None, {f"m{n}": [n, 0.5]}] for n in range(count)]
    thinned, _ = progress_curves.thin(points, 2.0)
    assert {name for one in thinned for name in one[3]} == {f"m{n}" for n in range(count)}
    assert [one[1] for one in thinned] == [*range(0, count - 1, 2), count - 1]
