"""Progress of a job over time: a limited number of points in one row, however many reports it makes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs_app.measurement import progress_curves
from jobs_app.measurement.progress_curves import CurvePoint, note_points, read_curve
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
