"""Age, waiting, completion time and rho of a job count from its begin time, if that is later than its submission."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from insight_app.lab.history import read_history
from insight_app.lab.results import actual_figures
from insight_app.lab.trace import trace_of
from insight_app.start_forecasts.reading import read_history as read_samples
from jobs_app.lifecycle.attempts import note_running
from jobs_app.models import Attempt, Job, JobEvent, Tally
from scheduler_app.finish_time import rhos_between
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.run_round import take_snapshot
from tests.service_lab import Lab

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@pytest.fixture
def begun(lab: Lab) -> Job:
    """Submitted three hours ago, to begin an hour ago, on a cluster of one node."""
    lab.node("n1")
    job = lab.submit(name="later", workload="w", rates={"a100": 1.0})
    Job.objects.filter(pk=job.pk).update(
        created_at=lab.now - 3 * HOUR, queued_at=lab.now - 3 * HOUR, begin_time=lab.now - HOUR
    )
    job.refresh_from_db()
    return job


def succeeded(lab: Lab, job: Job) -> datetime:
    """It started five minutes after its begin time, and ran for ten on one GPU; its end."""
    assert job.begin_time is not None
    start, end = job.begin_time + 5 * MINUTE, job.begin_time + 15 * MINUTE
    lab.attempt(job, state=Attempt.State.ENDED, outcome="succeeded", started_at=start, ended_at=end, rate=1.0)
    row = {"state": "succeeded", "started_at": start, "finished_at": end, "ran_s": 600.0}
    Job.objects.filter(pk=job.pk).update(**row)
    JobEvent.objects.create(job=job, kind=JobEvent.Kind.FINISHED)
    return end


def test_its_age_in_a_round(lab: Lab, begun: Job) -> None:
    snapshot = take_snapshot(lab.now, PolicySetting.objects.current())[0]
    assert snapshot.problem.age_s == pytest.approx([3600], abs=60)


def test_its_waiting_time(lab: Lab, begun: Job) -> None:
    assert begun.waited_s(lab.now) == pytest.approx(3600, abs=60)
    begun.begin_time = lab.now + HOUR
    assert begun.waited_s(lab.now) == 0


@pytest.mark.usefixtures("plain_static")
def test_how_long_it_waits_in_lists(client: Client, lab: Lab, begun: Job) -> None:
    client.force_login(lab.user())
    assert "waits</span> 1 h" in client.get(reverse("jobs")).content.decode()


def test_its_waiting_time_in_the_metric(lab: Lab, begun: Job) -> None:
    attempt = lab.attempt(begun, state=Attempt.State.LAUNCHING, nodes=["n1"])
    Job.objects.filter(pk=begun.pk).update(state=Job.State.STARTING)
    assert begun.begin_time is not None
    note_running({attempt.pk: begun.begin_time + MINUTE})
    assert Tally.objects.get(metric="job_wait_seconds").value == pytest.approx(60)


def test_its_completion_time_in_rho(lab: Lab, begun: Job) -> None:
    """Alone on two GPUs it needs its ten minutes; it took 15."""
    Round.objects.create(
        number=1, started_at=begun.arrived_at, result="committed", shares_since=lab.now, gpus=2, jobs=1
    )
    succeeded(lab, begun)
    assert rhos_between(0, JobEvent.objects.latest("pk").pk) == pytest.approx([1.5])


def test_its_arrival_and_completion_time_in_an_exported_history(lab: Lab, begun: Job) -> None:
    between = lab.submit(name="sooner", workload="w", rates={"a100": 1.0})
    Job.objects.filter(pk=between.pk).update(created_at=begun.arrived_at - HOUR, begin_time=begun.arrived_at - HOUR)
    between.refresh_from_db()
    for job in (begun, between):
        succeeded(lab, job)
    history = read_history(Job.objects.all(), lab.now - 24 * HOUR, lab.now, now=lab.now)
    jobs = trace_of(history)
    assert [(job.name, job.arrival_s) for job in jobs] == [(str(between.pk), 0), (str(begun.pk), 3600)]
    figures = actual_figures(jobs, history, gpus=2, power_w={})
    assert figures["avg_jct_h"] == pytest.approx(0.25)
    assert figures["makespan_h"] == pytest.approx(1.25)


def test_its_arrival_in_forecasts(lab: Lab, begun: Job) -> None:
    (sample,) = read_samples(lab.now, [], without=()).samples
    assert sample.arrived_at == begun.begin_time
    Job.objects.update(begin_time=lab.now + HOUR)
    assert not read_samples(lab.now, [], without=()).samples
