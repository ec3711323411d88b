"""Forecasts that are kept until the truth is known: which, what came true, how good they were, and for how long."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from estimation.accuracy import FEWEST
from forecast.calibration import Correction, ForecastClass, Outcome
from insight_app.models import KeptForecast
from insight_app.start_forecasts import forecast_store
from insight_app.start_forecasts.forecast_store import (
    Ending,
    Event,
    MadeForecast,
    Occasion,
    OpenForecast,
    came_true,
    forecasts_due,
    read_played,
    shown_quantiles,
)
from jobs_app.models import Attempt, Job
from operations.retention import delete_expired
from scheduler_app.models import PolicySetting
from tests.insight.forecast_cluster import forecast_now, running, submitted
from tests.service_lab import Lab

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


def made(job: UUID, *, runs: bool = False, started_before: bool = False) -> MadeForecast:
    quantiles = {Event.FINISH: np.array([1.0, 2.0, 3.0])}
    return MadeForecast(job, 1, True, runs, started_before, quantiles, quantiles, "a100", 1.0, 0)


def test_one_forecast_is_kept_per_occasion_and_hour(cluster: Lab) -> None:
    job, now = uuid4(), cluster.now

    def due(one: MadeForecast, *kept: tuple[Occasion, timedelta]) -> list[Occasion]:
        before = [OpenForecast(0, job, Event.FINISH, occasion, now - age) for occasion, age in kept]
        return [occasion for _, occasion in forecasts_due([one], before, now)]

    at_submission = (Occasion.SUBMISSION, 59 * MINUTE)
    assert due(made(job)) == [Occasion.SUBMISSION]
    assert due(made(job), at_submission) == []
    assert due(made(job), (Occasion.SUBMISSION, 60 * MINUTE)) == [Occasion.HOURLY]
    assert due(made(job, runs=True), at_submission) == [Occasion.START]
    assert due(made(job, runs=True), at_submission, (Occasion.START, MINUTE)) == []
    assert due(made(job, started_before=True)) == [Occasion.HOURLY]


def test_the_truth_is_known_at_the_start_and_at_a_good_end(cluster: Lab) -> None:
    now = cluster.now
    jobs = {name: uuid4() for name in ("waits", "runs", "succeeded", "cancelled", "gone")}
    endings = {
        jobs["waits"]: Ending(Job.State.QUEUED, None, None),
        jobs["runs"]: Ending(Job.State.RUNNING, now, None),
        jobs["succeeded"]: Ending(Job.State.SUCCEEDED, now, now + MINUTE),
        jobs["cancelled"]: Ending(Job.State.CANCELLED, None, now),
    }

    def events(event: Event) -> Iterable[OpenForecast]:
        return (OpenForecast(pk, job, event, Occasion.HOURLY, now) for pk, job in enumerate(jobs.values()))

    assert came_true(events(Event.START), endings) == ({1: now, 2: now}, [3, 4])
    assert came_true(events(Event.FINISH), endings) == ({2: now + MINUTE}, [3, 4])


def test_a_start_is_shown_no_later_than_the_end() -> None:
    outcome = Outcome(7000, 7200, 7400, 9000)
    outcomes = [(ForecastClass.of("start", outcome[:3], known_length=True), outcome)] * 100
    played = {Event.START: np.array([7000.0, 7200.0, 7400.0]), Event.FINISH: np.array([7060.0, 7260.0, 7460.0])}
    shown = shown_quantiles(played, Correction.of(outcomes), known_length=True)
    assert (shown[Event.START] <= shown[Event.FINISH]).all()
    assert shown[Event.FINISH].tolist() == played[Event.FINISH].tolist()


def test_hourly_forecasts_are_kept_of_the_same_few_jobs(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_store, "MOST_HOURLY", 2)
    jobs = [made(uuid4(), started_before=True) for _ in range(10)]
    first, again = ([one.job for one, _ in forecasts_due(some, [], cluster.now)] for some in (jobs, jobs[::-1]))
    assert len(first) == 2
    assert set(first) == set(again)


def test_what_never_comes_is_deleted_in_batches_and_nothing_is_read_in_the_transaction(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast_store, "ROWS_PER_BATCH", 10)
    team, columns = cluster.team(), {"known_length": True, "made_at": cluster.now, "occasion": "hourly"}
    KeptForecast.objects.bulk_create(KeptForecast(job=uuid4(), team=team, event="finish", **columns) for _ in range(35))
    submitted(cluster, minutes=10)
    with CaptureQueriesContext(connection) as queries:
        assert forecast_now(cluster).message == ""
    table = KeptForecast._meta.db_table
    told = [query["sql"] for query in queries if table in query["sql"]]
    assert sum(sql.startswith("DELETE") for sql in told) == 4
    assert max(at for at, sql in enumerate(told) if sql.startswith("SELECT")) < min(
        at for at, sql in enumerate(told) if sql.startswith("INSERT")
    )
    assert {one.occasion for one in KeptForecast.objects.all()} == {"submission"}


def test_what_has_come_true_stays_known_where_the_forecast_fails(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    started_at = cluster.now
    Job.objects.filter(pk=job.pk).update(started_at=started_at)
    PolicySetting.objects.update(parameters={"gone": 1})
    assert forecast_now(cluster, number=2).message
    assert KeptForecast.objects.get(job=job.pk, event="start").happened_at == started_at


def test_a_kept_forecast_is_closed_and_corrects_the_next(cluster: Lab) -> None:
    first, second = submitted(cluster, minutes=10), submitted(cluster, minutes=20)
    running(cluster, first)
    forecast_now(cluster)
    kept = KeptForecast.objects
    assert set(kept.filter(job=first.pk).values_list("event", "occasion")) == {("finish", "start")}
    assert set(kept.filter(job=second.pk).values_list("event", "occasion")) == {
        ("start", "submission"),
        ("finish", "submission"),
    }
    end = cluster.now + 12 * MINUTE
    Attempt.objects.all().delete()
    Job.objects.filter(pk=first.pk).update(state=Job.State.SUCCEEDED, finished_at=end)
    Job.objects.filter(pk=second.pk).update(started_at=end)
    forecast_now(cluster, number=2)
    assert kept.get(job=first.pk).happened_at == end
    assert kept.get(job=second.pk, event="start").happened_at == end
    assert kept.get(job=second.pk, event="finish").happened_at is None
    seen = read_played(cluster.now)
    ((_, waits),) = (one for one in seen if not one[1].happened)
    age = cluster.now - kept.get(job=second.pk, event="finish").made_at
    assert waits.true_s == pytest.approx(age.total_seconds(), abs=60)
    (_, of_end), (_, of_start) = (one for one in seen if one[1].happened)
    assert of_start.true_s == pytest.approx(of_end.true_s)
    assert of_end.low_s < of_end.median_s < of_end.high_s


def kept(
    lab: Lab, number: int, *, true_s: float, event: str = "start", median_s: float = 300.0, team: str = "vision"
) -> None:
    made_at = lab.now - timedelta(hours=1) + number * timedelta(seconds=1)
    seconds = {"low": median_s / 2, "median": median_s, "high": median_s * 2}
    KeptForecast.objects.create(
        job=uuid4(),
        team=lab.team(team),
        event=event,
        occasion="submission",
        made_at=made_at,
        known_length=True,
        happened_at=made_at + timedelta(seconds=true_s),
        **{f"{of}_{name}_s": value for of in ("played", "shown") for name, value in seconds.items()},
    )


@pytest.mark.usefixtures("plain_static")
def test_how_good_forecasts_were_is_told_once_there_are_enough_outcomes(lab: Lab, client: Client) -> None:
    client.force_login(lab.user())
    assert "No start or end with a forecast has happened yet." in client.get("/forecasts").content.decode()
    for number in range(FEWEST - 1):
        kept(lab, number, true_s=360.0 if number % 3 else 1000.0)
    assert f"too few outcomes ({FEWEST - 1} of {FEWEST})" in client.get("/forecasts").content.decode()
    kept(lab, FEWEST, true_s=360.0)
    kept(lab, FEWEST, true_s=7000.0, event="finish", median_s=7000.0)
    starts, ends = client.get("/api/v1/forecasts/accuracy").json()
    assert (starts["event"], starts["from_s"], starts["until_s"], starts["outcomes"]) == ("start", 0, 600, FEWEST)
    assert (starts["too_few"], ends["too_few"]) == (False, True)
    assert starts["coverage"] == pytest.approx(2 / 3)
    assert starts["median_error_s"] == pytest.approx(60)
    of_near, of_far = (0.1 * 210 + 0.5 * 60 + 0.1 * 240) / 3, (0.1 * 850 + 0.5 * 700 + 0.9 * 400) / 3
    assert starts["pinball_s"] == pytest.approx((2 * of_near + of_far) / 3)
    assert (ends["from_s"], ends["until_s"], ends["coverage"]) == (3600, 21600, 1)
    page = client.get("/forecasts").content.decode()
    assert "67 %" in page
    assert "1 min" in page


@pytest.mark.usefixtures("plain_static")
def test_how_good_forecasts_were_is_told_by_team_to_those_who_see_the_team(lab: Lab, client: Client) -> None:
    for number in range(FEWEST):
        kept(lab, number, true_s=360.0 if number % 3 else 1000.0)
    kept(lab, FEWEST, true_s=7000.0, event="finish", median_s=7000.0, team="hush")

    def told(user: User) -> dict[tuple[str, str], dict[str, Any]]:
        client.force_login(user)
        return {(one["team"], one["event"]): one for one in client.get("/api/v1/forecasts/accuracy/teams").json()}

    of_member, of_staff = told(lab.user()), told(lab.user("root", staff=True))
    assert list(of_member) == [("vision", "start")]
    assert list(of_staff) == [("hush", "finish"), ("vision", "start")]
    starts = of_member["vision", "start"]
    assert (starts["outcomes"], starts["too_few"]) == (FEWEST, False)
    assert starts["coverage"] == pytest.approx(2 / 3)
    assert starts["median_error_s"] == pytest.approx(60)
    assert of_staff["hush", "finish"]["too_few"] is True
    assert "hush" in client.get("/forecasts").content.decode()
    client.force_login(lab.user())
    page = client.get("/forecasts").content.decode()
    assert ("By team" in page, "hush" in page) == (True, False)


def test_kept_forecasts_expire(lab: Lab) -> None:
    kept(lab, 0, true_s=360.0)
    kept(lab, 1, true_s=360.0, event="finish")
    KeptForecast.objects.filter(event="start").update(happened_at=lab.now - timedelta(days=400))
    delete_expired(lab.now)
    assert [one.event for one in KeptForecast.objects.all()] == ["finish"]


def test_kept_forecasts_of_what_does_not_come_expire(lab: Lab) -> None:
    kept(lab, 0, true_s=360.0)
    KeptForecast.objects.update(happened_at=None)
    delete_expired(lab.now)
    assert KeptForecast.objects.count() == 1
    KeptForecast.objects.update(made_at=lab.now - timedelta(days=400))
    delete_expired(lab.now)
    assert not KeptForecast.objects.exists()
