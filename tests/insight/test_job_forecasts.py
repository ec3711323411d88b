"""When jobs start and end, as it is forecast after rounds, and how pages and REST show it."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Gpu, Node
from insight_app.models import JobForecast
from insight_app.start_forecasts import reading
from insight_app.start_forecasts.showing import Interval, read_forecast, why_none
from jobs_app.models import Job, JobArray, Reason
from scheduler_app.models import TimeWindow
from tests.insight.forecast_cluster import forecast_now, running, shown, submitted
from tests.service_lab import Lab
from web.pages.templatetags.format_filters import coming

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


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


def test_an_end_that_was_forecast_with_a_later_start_is_not_shown(cluster: Lab) -> None:
    job = submitted(cluster, minutes=5, begin_time=(cluster.now + timedelta(hours=2)).isoformat())
    forecast_now(cluster)
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, reason="")
    job.refresh_from_db()
    assert read_forecast(job) is None
    assert "earlier than forecast" in why_none(job)


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


def test_jobs_that_can_run_nowhere_have_no_forecast_and_stop_no_run(cluster: Lab) -> None:
    job = submitted(cluster, minutes=10)
    forecast_now(cluster)
    assert shown(job)
    Gpu.objects.update(healthy=False)
    run = forecast_now(cluster, number=2)
    assert (run.message, run.jobs) == ("", 0)
    assert not JobForecast.objects.exists()


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
    Job.objects.filter(pk=throttled.pk).update(reason=Reason.ARRAY_LIMIT, array=array, array_index=0)
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
