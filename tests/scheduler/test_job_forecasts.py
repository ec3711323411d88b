"""When jobs start and end, as it is forecast after rounds: read, played, written, and kept until the truth is known."""

import re
import subprocess
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Gpu, Node
from estimation.accuracy import FEWEST
from forecast.calibration import Correction, ForecastClass, Outcome
from jobs_app.models import Attempt, Job, JobArray, Reason
from scheduler_app.job_forecasts import reading, recording
from scheduler_app.job_forecasts.queue import front_of_queue
from scheduler_app.job_forecasts.reading import read_forecast_input
from scheduler_app.job_forecasts.recording import (
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
from scheduler_app.job_forecasts.runs import (
    LEAST_PAUSE,
    LONGEST_PAUSE,
    LONGEST_RUN,
    STOPPED_AFTER,
    ForecastsAreRunning,
    claim_run,
    note_failed,
    run_now,
)
from scheduler_app.job_forecasts.showing import Interval
from scheduler_app.models import ForecastRun, JobForecast, KeptForecast, PolicySetting, TimeWindow
from scheduler_app.round.inputs import InputRows, read_job_rows
from scheduler_app.round.retention import delete_expired
from scheduler_app.round.set_aside import Kind, set_aside
from scheduler_app.round.snapshot import build_snapshot
from scheduler_app.templatetags.words import coming
from tests.scheduler.forecast_cluster import RATE, a_round, forecast_now, running, submitted
from tests.service_lab import Lab

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


def shown(job: Job) -> JobForecast:
    return JobForecast.objects.get(pk=job.pk)


# -- read ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_of_a_long_queue_the_front_is_forecast_and_the_others_are_told_so(
    cluster: Lab, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_JOBS", 2)
    waiting = [submitted(cluster, minutes=1) for _ in range(3)]
    runs = submitted(cluster, minutes=1)
    running(cluster, runs)
    run = forecast_now(cluster)
    assert (run.message, run.jobs, run.left_out) == ("", 2, 2)
    assert (shown(runs).runs, shown(waiting[0]).place, shown(waiting[0]).queue) == (True, 1, 3)
    client.force_login(cluster.user())
    answer = client.get(f"/api/v1/jobs/{waiting[1].pk}/forecast").json()
    assert answer["why_none"] == "Only the 2 jobs at the front of the queue are forecast; 2 wait behind them."
    assert answer["why_none"] in client.get(f"/jobs/{waiting[1].pk}?tab=why").content.decode()
    assert "2 that wait behind them have no forecast" in client.get("/forecasts").content.decode()


def test_the_front_of_the_queue_is_what_runs_then_what_received_least_or_came_first(cluster: Lab) -> None:
    first, second, third = (submitted(cluster, minutes=1) for _ in range(3))
    Job.objects.filter(pk=first.pk).update(attained_gpu_s=60.0)
    rows = read_job_rows(Job.objects.all(), [], {})

    def front(most: int, *, strict: bool) -> list[UUID]:
        return [job.id for job in front_of_queue(rows, most, strict=strict)]

    assert front(2, strict=True) == [first.pk, second.pk]
    assert front(2, strict=False) == [second.pk, third.pk]
    rows[0], rows[2] = (row._replace(state=Job.State.RUNNING) for row in (rows[0], rows[2]))
    assert front(1, strict=True) == [first.pk, third.pk], "all that hold GPUs"


def test_jobs_of_the_last_two_weeks_are_samples_of_those_to_come(cluster: Lab) -> None:
    ended, old, waiting = (submitted(cluster, minutes=10) for _ in range(3))
    Job.objects.filter(pk=ended.pk).update(
        state=Job.State.SUCCEEDED,
        finished_at=cluster.now,
        created_at=cluster.now - 3 * MINUTE,
        attained_gpu_s=120.0,
    )
    Job.objects.filter(pk=old.pk).update(
        state=Job.State.SUCCEEDED, finished_at=cluster.now, created_at=cluster.now - timedelta(days=15)
    )
    found = read_forecast_input(cluster.now)
    assert [job.id for job in found.jobs] == [waiting.pk]
    assert found.present.jobs == 1
    assert len(found.unknowns.submitted_s) == 2
    assert found.unknowns.submitted_s[0] == pytest.approx(-180, abs=60)
    declared, took, of_waiting = found.unknowns.left.tolist()
    assert declared == of_waiting == pytest.approx(600 * RATE)
    assert took == pytest.approx(120 * RATE)


def test_the_sample_of_a_job_that_still_runs_has_run_for_as_long(cluster: Lab) -> None:
    job = cluster.submit(workload="w", rates={"a100": RATE})
    running(cluster, job, since=timedelta(hours=3))
    assert read_forecast_input(cluster.now).unknowns.done_s == pytest.approx([3 * 3600] * 2, abs=60)


def test_a_cluster_with_more_submissions_than_samples_knows_how_far_they_go_back(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_SAMPLES", 2)
    jobs, now = [submitted(cluster, minutes=10) for _ in range(3)], cluster.now
    for job, age in zip(jobs, (timedelta(days=9), 3 * MINUTE, MINUTE), strict=True):
        Job.objects.filter(pk=job.pk).update(created_at=now - age)
    found = read_forecast_input(now).unknowns
    assert (len(found.submitted_s), found.known_s, found.history_s) == (2, 180, 9 * 86_400)
    monkeypatch.setattr(reading, "MOST_SAMPLES", 4)
    assert read_forecast_input(now).unknowns.known_s == 9 * 86_400


def test_a_job_that_was_set_aside_does_not_come_back_as_a_sample(cluster: Lab) -> None:
    aside, waiting = (submitted(cluster, minutes=10) for _ in range(2))
    set_aside(Kind.JOB, {str(aside.pk): ValueError("unreadable")}, cluster.now)
    found = read_forecast_input(cluster.now)
    assert [job.id for job in found.jobs] == [waiting.pk]
    assert len(found.unknowns.submitted_s) == 1


def test_samples_with_which_no_snapshot_can_be_built_are_left_out(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a sample of a job that ended is set aside by no round."""
    waiting = submitted(cluster, minutes=10)

    def failing(rows: InputRows, *args: Any, **kwargs: Any) -> Any:
        if len(rows.jobs) > 1:
            raise FloatingPointError
        return build_snapshot(rows, *args, **kwargs)

    monkeypatch.setattr(reading, "build_snapshot", failing)
    assert forecast_now(cluster).message == ""
    assert shown(waiting)


def test_the_length_of_a_job_that_declares_none_is_drawn_from_its_estimate(cluster: Lab) -> None:
    cluster.succeeded("train", *[3600.0] * 10)
    submitted(cluster, name="train")
    found = read_forecast_input(cluster.now).unknowns
    assert np.isnan(found.left).all()
    estimate = found.duration[0]
    assert estimate is not None
    assert estimate.mean == pytest.approx(3600)


def test_lifetimes_of_nodes_are_those_of_the_inventory(cluster: Lab) -> None:
    cluster.node("n0", "a100", gpus=1)
    Node.objects.filter(name="n1").update(capacity_type=Node.CapacityType.SPOT)
    submitted(cluster, minutes=10)
    steady, spot = read_forecast_input(cluster.now).unknowns.lifetimes
    assert (steady.mean_up_s, spot.mean_up_s) == (90 * 86_400, 4 * 3600)


def test_a_time_limit_counts_from_what_has_run(cluster: Lab) -> None:
    job = submitted(cluster, minutes=60, time_limit=600)
    running(cluster, job, since=2 * MINUTE)
    Job.objects.filter(pk=job.pk).update(ran_s=60.0)
    of_job, of_sample = read_forecast_input(cluster.now).present.limit_s.tolist()
    assert of_job == pytest.approx(600 - 60 - 120, abs=30)
    assert of_sample == 600


# -- run -----------------------------------------------------------------------------------------------------------


def test_a_job_starts_when_the_one_before_it_ends(cluster: Lab) -> None:
    first, second = submitted(cluster, minutes=10), submitted(cluster, minutes=20)
    running(cluster, first)
    run = forecast_now(cluster)
    assert (run.message, run.jobs, run.draws) == ("", 2, 32)
    before, after = shown(first), shown(second)
    assert before.runs
    assert before.start_median is None
    assert before.finish_median
    assert after.start_low
    assert after.start_median
    assert after.start_high
    assert after.start_low <= before.made_at + 10 * MINUTE <= after.start_high
    assert after.start_low < after.start_median < after.start_high
    assert after.start_median == pytest.approx(before.finish_median, abs=MINUTE)
    assert (after.place, after.queue, after.gpu_type, after.type_part) == (1, 1, "a100", 1.0)


def test_a_job_that_waits_for_another_starts_when_that_has_ended(cluster: Lab) -> None:
    cluster.node("n2", "a100", gpus=2)
    first = submitted(cluster, minutes=30)
    second = submitted(cluster, minutes=10, after=[{"job": str(first.pk)}])
    third = submitted(cluster, minutes=10, after=[{"job": str(second.pk)}])
    assert forecast_now(cluster).jobs == 3
    for child, before in ((second, first), (third, second)):
        start, end = shown(child).start_median, shown(before).finish_median
        assert start is not None
        assert start == pytest.approx(end, abs=3 * MINUTE)


def test_a_job_that_waits_for_another_starts_no_sooner_than_its_begin_time(cluster: Lab) -> None:
    first = submitted(cluster, minutes=10)
    begin = cluster.now + timedelta(hours=5)
    second = submitted(cluster, minutes=10, after=[{"job": str(first.pk)}], begin_time=begin.isoformat())
    forecast_now(cluster)
    found = shown(second).start_low
    assert found is not None
    assert found >= begin


def test_a_job_that_waits_for_one_that_is_held_has_no_forecast_and_stops_no_run(cluster: Lab) -> None:
    held = submitted(cluster, minutes=30)
    Job.objects.filter(pk=held.pk).update(held=True)
    child = submitted(cluster, minutes=10, after=[{"job": str(held.pk)}])
    grandchild = submitted(cluster, minutes=10, after=[{"job": str(child.pk)}])
    other = submitted(cluster, minutes=10)
    assert (forecast_now(cluster).jobs, shown(other).place) == (1, 1)
    assert not JobForecast.objects.filter(job__in=[child.pk, grandchild.pk]).exists()


def test_tasks_beyond_the_limit_of_their_array_start_one_after_the_other(cluster: Lab) -> None:
    cluster.node("n2", "a100", gpus=3)
    submitted(cluster, minutes=30, array={"start": 0, "end": 2, "at_a_time": 1})
    assert forecast_now(cluster).jobs == 3
    starts = [shown(job).start_median for job in Job.objects.order_by("array_index")]
    for number, start in enumerate(starts):
        assert start == pytest.approx(cluster.now + number * 30 * MINUTE, abs=10 * MINUTE)


def test_a_job_starts_no_sooner_than_its_begin_time(cluster: Lab) -> None:
    job = submitted(cluster, minutes=5, begin_time=(cluster.now + timedelta(hours=2)).isoformat())
    forecast_now(cluster)
    found = shown(job)
    assert job.begin_time is not None
    assert found.start_low is not None
    assert found.start_high is not None
    assert job.begin_time <= found.start_low <= found.start_high < job.begin_time + 10 * MINUTE


def window_of(lab: Lab, *, begins_in: timedelta, hours: float) -> TimeWindow:
    """Maintenance of all nodes."""
    begins_at = lab.now + begins_in
    ends_at = begins_at + timedelta(hours=hours)
    window = TimeWindow.objects.create(reason="firmware", begins_at=begins_at, ends_at=ends_at)
    window.nodes.set(Node.objects.all())
    return window


def test_a_job_that_does_not_fit_before_a_window_starts_after_it(cluster: Lab) -> None:
    window = window_of(cluster, begins_in=30 * MINUTE, hours=2)
    long, short = submitted(cluster, minutes=60), submitted(cluster, minutes=5)
    forecast_now(cluster)
    found, before = shown(long), shown(short)
    assert found.start_low is not None
    assert before.finish_high is not None
    assert window.ends_at <= found.start_low
    assert before.finish_high < window.begins_at


def test_a_job_that_a_window_interrupts_ends_after_it(cluster: Lab) -> None:
    job = submitted(cluster, minutes=60)
    running(cluster, job)
    window = window_of(cluster, begins_in=30 * MINUTE, hours=2)
    forecast_now(cluster)
    found = shown(job)
    assert found.finish_low is not None
    assert found.finish_high is not None
    assert window.ends_at < found.finish_low < found.finish_high < window.ends_at + timedelta(hours=1)


def test_gpus_in_maintenance_are_forecast_to_come_back(cluster: Lab) -> None:
    window = window_of(cluster, begins_in=-MINUTE, hours=2)
    cluster.tick()
    assert Node.objects.get().state != Node.State.READY
    job = submitted(cluster, minutes=5)
    forecast_now(cluster, 7)
    found = shown(job)
    assert found.start_low is not None
    assert found.start_high is not None
    assert window.ends_at <= found.start_low <= found.start_high < window.ends_at + 20 * MINUTE


def test_a_run_without_jobs_deletes_the_forecasts_of_those_that_ended(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    assert JobForecast.objects.count() == 1
    Job.objects.filter(pk=job.pk).update(state=Job.State.CANCELLED, finished_at=cluster.now)
    run = forecast_now(cluster, number=2)
    assert (run.message, run.jobs, JobForecast.objects.count()) == ("", 0, 0)


def test_jobs_that_can_run_nowhere_have_no_forecast_and_stop_no_run(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    assert shown(job)
    Gpu.objects.update(healthy=False)
    run = forecast_now(cluster, number=2)
    assert (run.message, run.jobs) == ("", 0)
    assert not JobForecast.objects.exists()


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


def test_the_command_runs_what_was_claimed(cluster: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(cluster, minutes=10)
    a_round(cluster)
    run = claim_run(cluster.now)
    assert run is not None
    call_command("forecastjobs", str(run.pk))
    assert "1 jobs forecast from 32 futures" in capsys.readouterr().out
    run.refresh_from_db()
    assert run.finished_at is not None


# -- keep ----------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(recording, "MOST_HOURLY", 2)
    jobs = [made(uuid4(), started_before=True) for _ in range(10)]
    first, again = ([one.job for one, _ in forecasts_due(some, [], cluster.now)] for some in (jobs, jobs[::-1]))
    assert len(first) == 2
    assert set(first) == set(again)


def test_what_never_comes_is_deleted_in_batches_and_nothing_is_read_in_the_transaction(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "ROWS_PER_BATCH", 10)
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


# -- show ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_page_and_rest_show_the_interval_and_its_age(cluster: Lab, client: Client) -> None:
    first, second = submitted(cluster, minutes=10), submitted(cluster, minutes=20)
    running(cluster, first)
    forecast_now(cluster)
    client.force_login(cluster.user())
    page = " ".join(client.get(f"/jobs/{second.pk}").content.decode().split())
    assert "<b>Forecast:</b> starts <time" in page
    assert re.search(r">in about \d+ min \(\d+ to \d+ min\)</time>, ends <time", page)
    assert "most likely on A100; 1st of 1 that wait." in page
    running_page = " ".join(client.get(f"/jobs/{first.pk}").content.decode().split())
    assert "<b>Forecast:</b> ends <time" in running_page
    assert "that wait" not in running_page
    answer = client.get(f"/api/v1/jobs/{second.pk}/forecast").json()
    assert answer["why_none"] == ""
    told = answer["forecast"]
    assert told["start"]["low"] < told["start"]["median"] < told["start"]["high"] < told["finish"]["high"]
    assert (told["gpu_type"], told["place"], told["queue"]) == ("a100", 1, 1)
    assert client.get(f"/api/v1/jobs/{first.pk}/forecast").json()["forecast"]["start"] is None


def test_rest_says_why_a_job_has_no_forecast(cluster: Lab, client: Client, settings: Settings) -> None:
    client.force_login(cluster.user())
    held, child, ended, fresh = (submitted(cluster, minutes=10) for _ in range(4))
    Job.objects.filter(pk=held.pk).update(held=True)
    Job.objects.filter(pk=child.pk).update(reason=Reason.DEPENDENCY)
    Job.objects.filter(pk=ended.pk).update(state=Job.State.FAILED, finished_at=cluster.now)

    def why(job: Job) -> str:
        answer = client.get(f"/api/v1/jobs/{job.pk}/forecast").json()
        assert answer["forecast"] is None
        return str(answer["why_none"])

    assert "held" in why(held)
    assert "waits for other jobs" in why(child)
    assert "ended" in why(ended)
    assert "may be new" in why(fresh)
    throttled = submitted(cluster, minutes=10)
    array = JobArray.objects.create(start=0, end=9, at_a_time=1)
    Job.objects.filter(pk=throttled.pk).update(reason=Reason.QUOTA, array=array, array_index=0)
    assert "limit of tasks at a time" in why(throttled)
    forecast_now(cluster)
    JobForecast.objects.update(made_at=cluster.now - 31 * MINUTE)
    assert "older than 30 min" in why(fresh)
    JobForecast.objects.update(made_at=cluster.now)
    settings.MOTLEY_FORECASTS = False
    assert "switched off" in why(fresh)


def test_a_job_that_nobody_sees_in_time_is_more_than_three_days_away() -> None:
    at = timezone.now() + 90 * MINUTE + timedelta(seconds=20)
    assert coming(Interval(None, None, None)) == "in more than 3 days"
    assert coming(Interval(at, None, None)) == "in more than 3 days (1 h 30 min at the earliest)"
    assert ">in about 1 h 30 min (1 h 30 min to more than 3 days)</time>" in coming(Interval(at, at, None))


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
    assert "No start and no end that was forecast has come yet." in client.get("/forecasts").content.decode()
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


# -- lengths that nobody tells -------------------------------------------------------------------------------------


def test_a_job_that_has_run_for_long_is_forecast_by_those_that_took_longer(cluster: Lab) -> None:
    """Of its owner's jobs twelve took a minute, and twelve nine to ten hours."""
    for number in range(12):
        cluster.succeeded(f"train-{number}", 60, 60)
        cluster.succeeded(f"train-{number}", 60, 9 * 3600 + 300 * number)
    job = cluster.submit(name="train-99", workload="w", rates={"a100": RATE})
    running(cluster, job, since=timedelta(hours=1))
    (left,) = [one for one in read_forecast_input(cluster.now).unknowns.left_by_others[:1] if one]
    assert 8 * 3600 - 60 < left.quantile(0.1) < left.quantile(0.9) < 9 * 3600
    forecast_now(cluster)
    found = shown(job)
    assert found.finish_low is not None
    assert found.finish_low > cluster.now + 5 * 60 * MINUTE, "rates are uncertain, too"
    assert found.finish_high is not None
    assert found.finish_high < cluster.now + 13 * 60 * MINUTE


def test_a_declared_length_is_no_matter_of_other_jobs(cluster: Lab) -> None:
    for number in range(12):
        cluster.succeeded(f"train-{number}", 60, 60)
    submitted(cluster, minutes=10)
    cluster.submit(name="train-99", workload="w", rates={"a100": RATE})
    declared, estimated = read_forecast_input(cluster.now).unknowns.left_by_others[:2]
    assert declared is None
    assert estimated is not None
