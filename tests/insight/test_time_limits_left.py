"""A time limit bounds what is said to be left of a job: in the reasons of those that wait, and as it is explained."""

from datetime import timedelta

import pytest

from insight_app.explain.remaining_work import remaining_work
from jobs_app.models import Attempt, Job
from tests.service_lab import Lab

HOUR = 3600.0


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=1)
    lab.succeeded("train", *[2 * HOUR] * 12)
    return lab


@pytest.mark.parametrize("spec", [{}, {"name": "train", "total_steps": 100_000, "rates": {"a100": 1.0}}])
def test_a_holder_has_at_most_what_its_time_limit_leaves(cluster: Lab, spec: dict[str, object]) -> None:
    cluster.policy("motley", round_s=1)
    holder = cluster.submit(**{"name": "train", "time_limit": "10m", "checkpoint": {"restore_seconds": 600}} | spec)
    cluster.recorded_as_running(holder)
    cluster.ahead += timedelta(minutes=5)
    waits = cluster.submit(name="waits", rates={"a100": 1.0}, total_steps=10**6)
    cluster.decide()
    waits.refresh_from_db()
    assert "train (1 GPU, at most 5 min left)" in " ".join(one["detail"] for one in waits.reasons)


def test_what_is_left_of_a_job_is_at_most_what_its_time_limit_leaves(cluster: Lab) -> None:
    job = cluster.submit(name="train", time_limit="1h")
    Job.objects.filter(pk=job.pk).update(ran_s=1800)
    job.refresh_from_db()
    waiting = remaining_work(job, [], cluster.now)
    assert waiting is not None
    assert waiting.most_seconds == pytest.approx(1800)
    ago = cluster.now - timedelta(minutes=26)
    attempt = cluster.attempt(job, state=Attempt.State.RUNNING, started_at=ago)
    found = remaining_work(job, [attempt], cluster.now)
    assert found is not None
    assert found.seconds == found.least_seconds == found.most_seconds == pytest.approx(240, abs=10)
    assert "its time limit stops it then" in found.detail


def test_a_limit_beyond_the_estimate_changes_nothing(cluster: Lab) -> None:
    with_limit, without = (
        remaining_work(cluster.submit(name="train", **more), [], cluster.now) for more in ({"time_limit": "999h"}, {})
    )
    assert with_limit == without
