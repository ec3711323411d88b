"""Arrays whose tasks declare no length: live rounds run a few of them first, and estimate the others from these."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounting_app.durations.array_samples import read_array_samples
from accounting_app.durations.duration_history import read_ended_jobs
from accounting_app.durations.forecast_store import close_forecasts
from accounting_app.models import DurationForecast
from estimation.durations import Basis
from insight_app.explain.array_progress import array_progress, array_summary
from jobs_app.models import Attempt, Job, JobArray
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.archive import archive_of
from scheduler_app.round.run_round import take_snapshot
from scheduler_app.round.snapshot import Snapshot
from tests.service_lab import UNTIL_LET_GO, Lab

HOUR = 3600.0


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", "a100", gpus=2)
    lab.policy("slearn")
    lab.user()
    return lab


def array(lab: Lab, name: str, tasks: int, **spec: object) -> list[Job]:
    first = lab.submit(UNTIL_LET_GO, name=name, array={"start": 0, "end": tasks - 1}, **spec)
    return list(Job.objects.filter(array=first.array).order_by("array_index"))


def has_ended(lab: Lab, job: Job, seconds: float) -> None:
    """As after a run of so long, without the run."""
    DurationForecast.objects.filter(pk=job.pk).delete()
    lab.succeeded(job.name, seconds, array=job.array_id)
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=lab.now)


def snapshot(lab: Lab) -> Snapshot:
    return take_snapshot(lab.now, PolicySetting.objects.current())[0]


def each_s(found: Snapshot, job: Job) -> float:
    """Seconds left of the job, as policies are told."""
    row = found.jobs.index(str(job.pk))
    return float(found.problem.remaining_steps[row] / found.problem.base_rate[row])


def test_three_of_a_hundred_tasks_are_pilots_and_the_others_wait_for_them(cluster: Lab) -> None:
    array(cluster, "sweep", 100)
    problem = snapshot(cluster).problem
    assert (problem.pilot.sum(), problem.unsampled.sum()) == (3, 97)


def test_an_array_is_estimated_from_its_own_tasks_once_its_pilots_have_ended(cluster: Lab) -> None:
    cluster.succeeded("sweep", *[9 * HOUR] * 3)
    tasks = array(cluster, "sweep", 100)
    has_ended(cluster, tasks[0], HOUR)
    assert snapshot(cluster).problem.unsampled.any()
    for job in tasks[1:3]:
        has_ended(cluster, job, HOUR)
    after = snapshot(cluster)
    row = after.jobs.index(str(tasks[50].pk))
    duration = after.durations[row]
    assert duration is not None
    assert (duration.basis, duration.estimate.n, duration.estimate.mean) == (Basis.SAMPLED, 3, pytest.approx(HOUR))
    assert not (after.problem.pilot | after.problem.unsampled).any()
    assert each_s(after, tasks[50]) == pytest.approx(HOUR)
    assert after.problem.array_others_gpu_s[row] == pytest.approx(96 * HOUR)


def test_an_array_that_leaves_out_indices_has_as_many_tasks_as_it_lists(cluster: Lab) -> None:
    """Of ten tasks one is a pilot; of 901, as many as there are from the first index to the last, 28 would be."""
    cluster.submit(UNTIL_LET_GO, name="sweep", array="0-900:100")
    problem = snapshot(cluster).problem
    assert (problem.pilot.sum(), problem.unsampled.sum()) == (1, 9)
    JobArray.objects.update(indices=7)  # as nobody but the service should write
    assert len(snapshot(cluster).jobs) == 10


def test_history_at_submission_draws_the_estimate_to_itself(cluster: Lab) -> None:
    tasks = array(cluster, "sweep", 5)
    forecast = {"submission_s": 9 * HOUR, "submission_spread": 0.5, "submission_basis": Basis.SIMILAR.value}
    cluster.succeeded("sweep", HOUR, array=tasks[0].array_id, **forecast)
    assert HOUR < each_s(snapshot(cluster), tasks[1]) < 9 * HOUR


def test_tasks_that_a_limit_or_a_hold_keeps_out_of_the_round_count_as_left(cluster: Lab) -> None:
    tasks = array(cluster, "sweep", 10, total_steps=3600, rates={"a100": 1})
    Job.objects.filter(pk__in=[job.pk for job in tasks[5:]]).update(held=True)
    problem = snapshot(cluster).problem
    assert problem.array_others_gpu_s == pytest.approx([9 * HOUR] * 5)
    assert not problem.pilot.any()  # they declare how long they are


def test_a_round_asks_as_much_for_many_arrays_as_for_one(cluster: Lab) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            snapshot(cluster)
        return len(asked)

    array(cluster, "sweep", 3)
    of_one = queries()
    for number in range(4):
        array(cluster, f"sweep-{number}", 3)
    assert queries() == of_one
    assert read_array_samples(()) == {}


def test_the_array_with_less_left_goes_on_once_both_have_told(cluster: Lab) -> None:
    """Live: of two arrays of four, the tasks of one have taken longer than the clock says of the other's."""
    long, short = array(cluster, "long", 4), array(cluster, "short", 4)
    for job, seconds in ((long[0], 9 * HOUR), (short[0], HOUR)):
        has_ended(cluster, job, seconds)
    cluster.running(*short[1:3])
    assert {job.state for job in Job.objects.filter(array=long[0].array, state=Job.State.RUNNING)} == set()


def test_the_tasks_that_ran_tell_of_their_array(cluster: Lab) -> None:
    """Live, from the first pilot to the estimate of the next round."""
    tasks = array(cluster, "sweep", 3)
    cluster.until(lambda: Job.objects.filter(array=tasks[0].array, state=Job.State.RUNNING).exists())
    pilot = Job.objects.filter(array=tasks[0].array, state=Job.State.RUNNING).first()
    assert pilot is not None
    cluster.let_go(pilot)
    cluster.until_state(pilot, Job.State.SUCCEEDED)
    cluster.until(lambda: DurationForecast.objects.get(pk=pilot.pk).ended_at)
    took_s = DurationForecast.objects.get(pk=pilot.pk).seconds
    assert took_s is not None
    cluster.round()
    record = Round.objects.latest_committed()
    assert record is not None
    problem = archive_of(record).snapshot.problem
    assert not (problem.pilot | problem.unsampled).any()
    assert (problem.total_steps / problem.base_rate).min() >= took_s


def test_progress_is_told_on_pages_over_rest_and_in_words(cluster: Lab, plain_static: None, client: Client) -> None:
    """Five of a hundred have ended, two more run and have been at it for half an hour."""
    tasks = array(cluster, "sweep", 100)
    for job in tasks[:5]:
        has_ended(cluster, job, 2 * HOUR)
    Job.objects.filter(pk=tasks[5].pk).update(state=Job.State.FAILED, finished_at=cluster.now)
    for job in tasks[6:8]:
        cluster.attempt(job, state=Attempt.State.RUNNING, started_at=cluster.now - timedelta(minutes=30))
        Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    client.force_login(cluster.user())
    found = client.get(f"/api/v1/arrays/{tasks[0].array_id}").json()
    assert [found[name] for name in ("tasks", "waiting", "running", "succeeded", "failed")] == [100, 92, 2, 5, 1]
    assert (found["estimate"]["seconds"], found["estimate"]["tasks"]) == (pytest.approx(2 * HOUR), 5)
    assert found["gpu_seconds_left"] == pytest.approx((92 * 2 + 2 * 1.5) * HOUR, rel=0.01)
    assert found["summary"] == "5 of 100 done, 1 failed: 2 h each on GPUs of mean speed, 187 GPU-hours left"
    for address in (f"/jobs?array={tasks[0].array_id}", f"/jobs/{tasks[50].pk}"):
        assert found["summary"] in client.get(address).content.decode()
    assert "from 5 tasks of its array" in client.get(f"/jobs/{tasks[50].pk}").content.decode()


def test_before_a_task_has_ended_no_time_is_told(cluster: Lab) -> None:
    tasks = array(cluster, "sweep", 100)
    found = array_progress(tasks[0].array_id, Job.objects.all(), cluster.now)
    assert found is not None
    assert (array_summary(found), found.each, found.left_gpu_s) == ("0 of 100 done", None, None)
    assert array_progress(tasks[0].pk, Job.objects.all(), cluster.now) is None


def test_an_array_weighs_as_much_as_one_job_in_the_history(cluster: Lab) -> None:
    cluster.succeeded("train", HOUR)
    tasks = array(cluster, "train", 12)
    for job in tasks:
        DurationForecast.objects.create(
            job=job.pk, owner=job.owner, team=job.team, name="train", gpus=1, array=job.array_id
        )
    for moment, half in enumerate((tasks[:6], tasks[6:])):
        ended(cluster, half, seconds=(3 + 2 * moment) * HOUR)
    assert [job.seconds for job in read_ended_jobs()] == pytest.approx([4 * HOUR, HOUR])


def ended(lab: Lab, jobs: list[Job], *, seconds: float) -> None:
    """Jobs that ran so long on one average GPU and succeeded; their forecasts are completed."""
    for job in jobs:
        start, end = lab.now - timedelta(seconds=seconds), lab.now
        moments = {"started_at": start, "ended_at": end, "gone_at": end}
        lab.attempt(job, state="ended", outcome="succeeded", **moments)
        Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=end)
    close_forecasts([job.pk for job in jobs])
