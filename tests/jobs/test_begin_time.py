"""Begin time: the job waits until then with that reason, then it runs; it can be changed while the job waits."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from rest_framework.test import APIClient

from insight_app.explain.what_if import what_would_start
from jobs_app.lifecycle.commands import change_job
from jobs_app.models import Job, Reason
from jobs_app.submission.conversion import parse_change, spec_of
from jobs_app.submission.submit import cloned_spec
from scheduler_app.models import Round
from scheduler_app.round.tick import round_is_due
from tests.rest_callers import SPEC
from tests.service_lab import Lab

HOUR = timedelta(hours=1)


@pytest.fixture
def later(cluster: Lab) -> Job:
    """A job that may begin in an hour, on a cluster without other jobs."""
    return cluster.submit(begin_time=(cluster.now + HOUR).isoformat())


def fresh(job: Job) -> Job:
    job.refresh_from_db()
    return job


def test_a_job_waits_for_its_begin_time_and_names_it(cluster: Lab, later: Job) -> None:
    told = later.reason, later.message
    cluster.round()
    assert later.begin_time is not None
    words = f"It is not started before {later.begin_time:%F %H:%M:%S} UTC, its begin time."
    assert told == (Reason.BEGIN_TIME, words)
    assert (fresh(later).state, later.reason, later.message) == (Job.State.QUEUED, Reason.BEGIN_TIME, words)
    assert parse_datetime(later.reasons[0]["numbers"]["begin_time"]) == later.begin_time


def test_a_job_that_waits_for_another_one_too_names_both(cluster: Lab) -> None:
    first, at = cluster.submit(name="first"), cluster.now + HOUR
    job = cluster.submit(begin_time=at.isoformat(), after=[{"job": str(first.pk)}])
    cluster.decide()
    assert [one["code"] for one in fresh(job).reasons] == ["dependency", "begin_time"]
    assert (job.reason, "Waits for first" in job.message) == (Reason.DEPENDENCY, True)
    told = what_would_start(job, cluster.now).note
    assert "its begin time" in told
    assert "waits for other jobs" in told


def test_it_runs_once_that_time_has_come(cluster: Lab, later: Job) -> None:
    cluster.round()
    cluster.ahead += HOUR
    cluster.until_state(later, Job.State.SUCCEEDED)


def test_a_round_is_due_when_that_time_comes(cluster: Lab, later: Job) -> None:
    cluster.policy("fifo", round_s=3 * HOUR.total_seconds())
    cluster.tick()
    last = Round.objects.defer("archive").latest("number")
    assert later.begin_time is not None
    assert not round_is_due(max(later.begin_time - timedelta(seconds=10), last.started_at + timedelta(seconds=5)))
    assert round_is_due(later.begin_time + timedelta(seconds=1))


def test_without_its_begin_time_it_runs_at_once(cluster: Lab, later: Job) -> None:
    cluster.round()
    change_job(later, parse_change({"begin_time": None}), actor=cluster.user())
    cluster.until_state(later, Job.State.SUCCEEDED)


def test_a_later_begin_time_is_shown_after_the_next_round(cluster: Lab, later: Job) -> None:
    at = cluster.now + 5 * HOUR
    change_job(later, parse_change({"begin_time": at.isoformat()}), actor=cluster.user())
    cluster.round()
    assert (fresh(later).begin_time, f"{at:%F %H:%M}" in later.message) == (at, True)


def test_a_running_job_has_no_begin_time_to_change(ada: APIClient, cluster: Lab, running: Job) -> None:
    at = (cluster.now + HOUR).isoformat()
    answer = ada.patch(f"/api/v1/jobs/{running.pk}", {"begin_time": at}, format="json")
    assert (answer.status_code, "requeue it first" in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize("time", ["16:00", "tomorrow", "now+", "now+soon", "now+99999999999d", "2020-12-01T08:00", 5])
def test_rest_takes_a_whole_time_in_the_future(ada: APIClient, cluster: Lab, time: Any) -> None:
    answer = ada.post("/api/v1/jobs", {**SPEC, "begin_time": time}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/begin_time")


@pytest.mark.parametrize("text", ["now+1hour", "now + 60min", "now+0-1:00:00"])
def test_rest_takes_a_time_from_now_as_the_command_does(ada: APIClient, cluster: Lab, text: str) -> None:
    answer = ada.post("/api/v1/jobs", {**SPEC, "begin_time": text, "gpus": "1-2"}, format="json")
    assert answer.status_code == 201, answer.json()
    assert answer.json()["spec"]["gpus"] == {"min": 1, "max": 2}
    begins = parse_datetime(answer.json()["spec"]["begin_time"])
    assert begins is not None
    assert timedelta(minutes=59) < begins - timezone.now() <= timedelta(hours=1)


def test_it_is_part_of_the_spec_and_of_a_clone_until_it_has_passed(cluster: Lab, later: Job) -> None:
    written = spec_of(later)["begin_time"]
    assert parse_datetime(written) == later.begin_time
    assert cloned_spec(spec_of(later))["begin_time"] == written
    later.begin_time = cluster.now - HOUR
    assert "begin_time" not in cloned_spec(spec_of(later))


def test_nothing_but_that_time_would_start_it(cluster: Lab, later: Job) -> None:
    assert "its begin time. Change or remove that time" in what_would_start(later, cluster.now).note
