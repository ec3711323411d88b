"""Runs of forecasts: when they begin, one at a time, what they delete, and what is said of those that fail."""

import subprocess
from datetime import timedelta

import pytest
from django.core.management import call_command

from insight_app.gpu_prices.planned import read_planned_hours
from insight_app.models import ForecastRun, JobForecast
from insight_app.start_forecasts.runs import (
    LEAST_PAUSE,
    LONGEST_PAUSE,
    LONGEST_RUN,
    STOPPED_AFTER,
    ForecastsAreRunning,
    claim_run,
    forecast_jobs,
    note_failed,
    run_now,
)
from jobs_app.models import Job
from scheduler_app.models import PolicySetting
from tests.insight.forecast_cluster import a_round, forecast_now, shown, submitted
from tests.service_lab import Lab

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


def test_a_run_without_jobs_deletes_the_forecasts_of_those_that_ended(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    assert JobForecast.objects.count() == 1
    Job.objects.filter(pk=job.pk).update(state=Job.State.CANCELLED, finished_at=cluster.now)
    run = forecast_now(cluster, number=2)
    assert (run.message, run.jobs, JobForecast.objects.count()) == ("", 0, 0)


def test_a_run_that_fails_says_why_and_leaves_the_last_forecasts(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    PolicySetting.objects.update(parameters={"gone": 1})
    run = forecast_now(cluster, number=2)
    assert run.message.startswith("InvalidParameter")
    assert run.finished_at is not None
    assert shown(job)


def test_one_run_at_a_time_after_a_new_round_and_a_pause(cluster: Lab) -> None:
    now = cluster.now
    submitted(cluster, minutes=10)
    assert claim_run(now) is None, "no round"
    a_round(cluster, 1)
    run = claim_run(now)
    assert run is not None
    a_round(cluster, 2)
    assert claim_run(now + LEAST_PAUSE) is None, "it runs"
    ForecastRun.objects.update(finished_at=now + timedelta(seconds=20))
    assert claim_run(now + timedelta(seconds=99)) is None, "a fifth of the time at most"
    second = claim_run(now + timedelta(seconds=100))
    assert second is not None
    assert second.round == 2
    ForecastRun.objects.update(finished_at=now + timedelta(seconds=101))
    assert claim_run(now + timedelta(hours=1)) is None, "no new round"
    a_round(cluster, 3)
    assert claim_run(now + timedelta(hours=1)) is not None
    a_round(cluster, 4)
    assert claim_run(now + timedelta(hours=1) + LONGEST_RUN) is not None, "the last one is lost"


def test_a_run_whose_process_was_stopped_is_followed_by_a_pause(cluster: Lab) -> None:
    now = cluster.now
    submitted(cluster, minutes=10)
    a_round(cluster, 1)
    run = claim_run(now)
    assert run is not None
    note_failed(run.pk, subprocess.TimeoutExpired("forecastjobs", 240), now + STOPPED_AFTER)
    run.refresh_from_db()
    assert "timed out" in run.message
    a_round(cluster, 2)
    assert claim_run(now + LONGEST_RUN) is None
    assert claim_run(now + LONGEST_PAUSE) is not None, "but no longer than ten minutes"


def test_a_clock_that_was_set_back_stops_no_runs(cluster: Lab) -> None:
    now = cluster.now
    submitted(cluster, minutes=10)
    a_round(cluster, 1)
    ForecastRun.objects.create(round=1, started_at=now + timedelta(days=1), finished_at=now + timedelta(days=1))
    a_round(cluster, 2)
    assert claim_run(now) is not None
    ForecastRun.objects.filter(round=2).update(finished_at=now)
    a_round(cluster, 3)
    assert claim_run(now + timedelta(seconds=1)) is None, "it pauses after the newest one"


def test_a_run_by_hand_begins_now_and_not_beside_another(cluster: Lab) -> None:
    now = cluster.now
    submitted(cluster, minutes=10)
    a_round(cluster)
    claimed = claim_run(now)
    assert claimed is not None
    with pytest.raises(ForecastsAreRunning):
        run_now(now + MINUTE)
    ForecastRun.objects.update(finished_at=now + MINUTE)
    again = run_now(now + 60 * MINUTE)
    assert again is not None
    assert (again.pk, again.started_at, again.finished_at) == (claimed.pk, now + 60 * MINUTE, None)


def test_a_run_by_hand_that_fails_dates_no_old_plan_anew(cluster: Lab) -> None:
    submitted(cluster, minutes=10)
    cluster.policy("motley", round_s=60)
    first = forecast_now(cluster)
    assert first.planned is not None
    PolicySetting.objects.update(parameters={"gone": 1})
    later = cluster.now + 60 * MINUTE
    again = run_now(later)
    assert again is not None
    assert (again.pk, forecast_jobs(again, later).message[:16]) == (first.pk, "InvalidParameter")
    assert read_planned_hours(later) is None


def test_the_command_runs_what_was_claimed(cluster: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(cluster, minutes=10)
    a_round(cluster)
    run = claim_run(cluster.now)
    assert run is not None
    call_command("forecastjobs", str(run.pk))
    assert "1 jobs forecast from 32 futures" in capsys.readouterr().out
    run.refresh_from_db()
    assert run.finished_at is not None
