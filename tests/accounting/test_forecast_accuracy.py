"""How good forecasts of durations were: on the page, over REST, as metrics; and how long they are kept."""

from datetime import timedelta

import pytest
from django.test import Client

from accounting_app.durations.accuracy import Moment, judge_forecasts
from accounting_app.models import DurationForecast
from estimation.accuracy import FEWEST
from estimation.durations import Basis
from operations.metrics import exposition
from operations.retention import delete_expired
from tests.service_lab import Lab

HOUR = 3600.0


def judged(lab: Lab, *, jobs: int, factor: float, spread: float = 0.5) -> None:
    """Jobs of one to so many hours, each forecast too long by that factor at submission, and rightly at the start."""
    for number in range(1, jobs + 1):
        forecast = {"submission_s": number * HOUR * factor, "submission_spread": spread, "submission_n": 3}
        at_start = {"start_s": number * HOUR, "start_spread": spread, "start_n": 4}
        bases = {"submission_basis": Basis.USER, "start_basis": Basis.SIMILAR}
        lab.succeeded("train", number * HOUR, **forecast, **at_start, **bases)


def test_forecasts_are_judged_by_when_and_from_what_they_were_made(lab: Lab) -> None:
    judged(lab, jobs=FEWEST, factor=3)
    at_submission, at_start = judge_forecasts()
    assert (at_submission.moment, at_submission.basis) == (Moment.SUBMISSION, Basis.USER)
    assert at_submission.accuracy.n == FEWEST
    assert at_submission.accuracy.mape == pytest.approx(2)
    assert at_submission.accuracy.rank_correlation == pytest.approx(1)
    assert at_submission.within_limits == 0
    assert (at_start.moment, at_start.basis, at_start.within_limits) == (Moment.START, Basis.SIMILAR, 1)


def test_jobs_that_run_and_jobs_without_a_forecast_are_not_judged(lab: Lab) -> None:
    lab.succeeded("train", HOUR)
    lab.succeeded("running", HOUR, submission_s=5, submission_spread=1, submission_basis=Basis.ALL)
    DurationForecast.objects.filter(name="running").update(seconds=None, ended_at=None)
    assert judge_forecasts() == []


@pytest.mark.usefixtures("plain_static")
def test_the_page_and_rest_give_figures_once_there_are_enough_outcomes(lab: Lab, client: Client) -> None:
    client.force_login(lab.user())
    assert "No job with a forecast has succeeded yet." in client.get("/estimates").content.decode()
    judged(lab, jobs=FEWEST - 1, factor=3)
    assert f"fewer than {FEWEST} outcomes" in client.get("/estimates").content.decode()
    assert client.get("/api/v1/estimates").json()["durations"][0]["too_few"] is True
    judged(lab, jobs=1, factor=3)
    page = client.get("/estimates").content.decode()
    assert "200 %" in page
    assert "all jobs of the owner" in page
    first = client.get("/api/v1/estimates").json()["durations"][0]
    assert (first["moment"], first["basis"], first["jobs"], first["too_few"]) == ("submission", "user", FEWEST, False)
    assert (first["factor"], first["within_limits"]) == (pytest.approx(3), 0)


def test_metrics_have_errors_only_of_enough_outcomes(lab: Lab) -> None:
    judged(lab, jobs=FEWEST - 1, factor=3)
    label = '{basis="user",moment="submission"}'
    assert f"motley_forecast_jobs{label} 29.0" in exposition().decode()
    assert f"motley_forecast_error_ratio{label}" not in exposition().decode()
    judged(lab, jobs=1, factor=3)
    assert f"motley_forecast_error_ratio{label} 2.0" in exposition().decode()


def test_forecasts_are_kept_for_a_time_and_in_number(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.succeeded("old", HOUR)
    DurationForecast.objects.update(ended_at=lab.now - timedelta(days=400))
    lab.succeeded("new", HOUR, HOUR, HOUR)
    lab.succeeded("running", HOUR)
    DurationForecast.objects.filter(name="running").update(seconds=None, ended_at=None)
    delete_expired(lab.now)
    assert sorted(DurationForecast.objects.values_list("name", flat=True)) == ["new", "new", "new", "running"]
    monkeypatch.setattr("operations.retention.MOST_FORECASTS", 2)
    delete_expired(lab.now)
    assert sorted(DurationForecast.objects.values_list("name", flat=True)) == ["new", "new", "running"]
