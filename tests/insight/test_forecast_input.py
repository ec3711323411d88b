"""What forecasts of jobs are made from: the front of the queue, samples of jobs to come, lengths and lifetimes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from cluster_app.models import Node
from insight_app.start_forecasts import reading
from insight_app.start_forecasts.queue import front_of_queue
from insight_app.start_forecasts.reading import read_forecast_input
from jobs_app.models import Job
from scheduler_app.round.inputs import InputRows, read_job_rows
from scheduler_app.round.set_aside import Kind, set_aside
from scheduler_app.round.snapshot import build_snapshot
from tests.insight.forecast_cluster import RATE, forecast_now, running, shown, submitted
from tests.service_lab import Lab

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


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
    job = submitted(cluster, minutes=60, time_limit="600s")
    running(cluster, job, since=2 * MINUTE)
    Job.objects.filter(pk=job.pk).update(ran_s=60.0)
    of_job, of_sample = read_forecast_input(cluster.now).present.limit_s.tolist()
    assert of_job == pytest.approx(600 - 60 - 120, abs=30)
    assert of_sample == 600


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
