"""How long a job still runs, as its page, REST and the command say it."""

from datetime import timedelta

import pytest
from django.test import Client

from accounting_app.models import DurationForecast
from estimation.durations import Basis
from insight_app.explain.remaining_work import RemainingWork, remaining_work
from jobs_app.models import Attempt, Job
from tests.service_lab import Lab

HOUR = 3600.0


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", "a100", gpus=4)
    return lab


def told(lab: Lab, job: Job) -> RemainingWork:
    found = remaining_work(job, list(job.attempts.all()), lab.now)
    assert found is not None
    return found


def running(lab: Lab, job: Job, *, for_s: float, **columns: float) -> Attempt:
    return lab.attempt(job, state=Attempt.State.RUNNING, started_at=lab.now - timedelta(seconds=for_s), **columns)


def test_a_waiting_job_is_told_the_running_time_and_how_sure_that_is(cluster: Lab) -> None:
    cluster.succeeded("train-1", *[2 * HOUR] * 12)
    found = told(cluster, cluster.submit(name="train-2"))
    assert (found.basis, found.jobs, found.runs) == (Basis.SIMILAR, 12, False)
    assert found.seconds == pytest.approx(2 * HOUR)
    assert found.least_seconds < found.seconds < found.most_seconds
    assert found.detail == "from 12 similar jobs of ada"


def test_a_job_on_gpus_twice_as_fast_has_half_as_long_to_go(cluster: Lab) -> None:
    cluster.succeeded("train", *[2 * HOUR] * 12)
    fast, slow = (cluster.submit(name="train") for _ in range(2))
    running(cluster, fast, for_s=0, relative_speed=2.0)
    running(cluster, slow, for_s=0)
    assert told(cluster, fast).seconds == pytest.approx(HOUR, rel=1e-3)
    assert told(cluster, slow).seconds == pytest.approx(2 * HOUR, rel=1e-3)


def test_the_work_of_ended_attempts_counts(cluster: Lab) -> None:
    cluster.succeeded("train", *[2 * HOUR] * 50)
    job, fresh = (cluster.submit(name="train") for _ in range(2))
    hour_ago = cluster.now - timedelta(hours=1)
    ran = {"started_at": hour_ago, "ended_at": cluster.now, "gone_at": cluster.now}
    cluster.attempt(job, state=Attempt.State.ENDED, outcome=Attempt.Outcome.PREEMPTED, **ran)
    assert told(cluster, job).seconds < told(cluster, fresh).seconds


def test_steps_that_the_job_declares_are_told_in_place_of_what_others_took(cluster: Lab) -> None:
    cluster.succeeded("train", 9 * HOUR)
    job = cluster.submit(name="train", total_steps=1000)
    Job.objects.filter(pk=job.pk).update(step=400)
    job.refresh_from_db()
    running(cluster, job, for_s=60, rate=2.0)
    found = told(cluster, job)
    assert (found.basis, found.seconds, found.least_seconds) == (Basis.DECLARED, 300, 300)


def test_a_rate_that_is_assumed_is_said_to_be(cluster: Lab) -> None:
    job = cluster.submit(total_steps=3600)
    attempt = running(cluster, job, for_s=0, rate=1.0)
    Attempt.objects.filter(pk=attempt.pk).update(rate_source="assumed")
    assert told(cluster, job).detail.startswith("from the steps it declares at an assumed rate")


def test_a_waiting_job_with_steps_is_told_what_is_left_of_the_rounds_forecast(cluster: Lab) -> None:
    job = cluster.submit(name="train", total_steps=1000)
    assert remaining_work(job, [], cluster.now) is None
    cluster.succeeded("other", 1)
    DurationForecast.objects.filter(name="other").update(
        job=job.pk, seconds=None, ended_at=None, submission_s=500, submission_basis=Basis.DECLARED
    )
    Job.objects.filter(pk=job.pk).update(step=400)
    job.refresh_from_db()
    assert told(cluster, job).seconds == pytest.approx(300)


@pytest.mark.parametrize(
    ("name", "owner", "detail"),
    [
        ("train", "eve", "from 1 similar job of the team"),
        ("something-else", "ada", "from 1 job of ada"),
        ("something-else", "eve", "from 30 jobs of all teams"),
    ],
)
def test_it_says_whose_jobs_it_is_based_on_and_names_nobody_else(
    cluster: Lab, name: str, owner: str, detail: str
) -> None:
    cluster.succeeded("secret", *[HOUR] * 29, team="language", owner=cluster.user("bob", "language"))
    cluster.succeeded("train", HOUR)
    assert told(cluster, cluster.submit(name=name, owner=cluster.user(owner))).detail == detail


def test_nothing_is_told_of_a_job_that_has_ended_or_before_any_has(cluster: Lab) -> None:
    job = cluster.submit(name="train")
    assert remaining_work(job, [], cluster.now) is None
    cluster.succeeded("train", HOUR)
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=cluster.now)
    job.refresh_from_db()
    assert remaining_work(job, [], cluster.now) is None


@pytest.mark.usefixtures("plain_static")
def test_the_page_and_rest_say_it(cluster: Lab, client: Client) -> None:
    cluster.succeeded("train", *[2 * HOUR] * 12)
    job = cluster.submit(name="train")
    client.force_login(cluster.user())
    page = " ".join(client.get(f"/jobs/{job.pk}").content.decode().split())
    assert "about 2 h of running time" in page
    assert "from 12 similar jobs of ada" in page
    answer = client.get(f"/api/v1/jobs/{job.pk}/explain").json()
    assert answer["remaining"]["seconds"] == pytest.approx(2 * HOUR)
    assert answer["remaining"]["detail"] == "from 12 similar jobs of ada"
