"""A job starts on GPUs that would idle, if its rate there would change the choice of its workload's GPU type most."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import GpuType, Node
from estimation.profiling import MEASUREMENT_S
from insight_app.explain.decisions import explain_job
from jobs_app.models import Attempt, Job, JobEvent, Throughput
from scheduler_app.models import Round
from scheduler_app.round import measuring
from scheduler_app.round.lease import acquire_lease
from scheduler_app.round.measuring import GPU_TIME_PART, WINDOW
from scheduler_app.round.run_round import run_round
from tests.service_lab import Lab

A100_RATE = 10.0


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """Known workloads are three times as fast on the T4, or as much slower; the new one ran on an A100."""
    lab.node("n1", "a100", gpus=2)
    lab.node("n2", "t4", gpus=1)
    Node.objects.update(emulated=False)  # no engine tells their health: they are as they were added
    lab.policy("max_sum_throughput", min_run_s=300)
    for number in range(8):
        faster = (3.0, 0.3)[number % 2]
        _measured(lab, f"known-{number}", a100=2.0**number, t4=faster * 2.0**number)
    _measured(lab, "new", a100=A100_RATE)
    return lab


def _measured(lab: Lab, workload: str, **rates: float) -> None:
    for name, rate in rates.items():
        Throughput.objects.create(
            team=lab.team(),
            workload=workload,
            gpu_type=GpuType.objects.get(name=name),
            gpus=1,
            nodes=1,
            steps_per_second=rate,
            reports=10,
        )


def _round(cluster: Lab) -> None:
    """A round; no engine is told of what it starts."""
    assert acquire_lease("lab", cluster.now)
    assert run_round("lab", cluster.now).result == Round.Result.COMMITTED


def _placed(cluster: Lab, name: str, **spec: Any) -> Attempt:
    job = cluster.submit(name=name, **({"workload": "new"} | spec))
    _round(cluster)
    return cluster.attempts(job)[0]


def _told(attempt: Attempt) -> str:
    sentence: str = explain_job(attempt.job, timezone.now())["measurement"]
    return sentence


def test_the_second_job_of_a_workload_measures_the_type_that_may_be_faster(cluster: Lab) -> None:
    second = _placed(cluster, "second")
    assert (second.gpu_type.name, second.measures) == ("t4", True)
    assert "measuring on T4" in _told(second)


def test_one_job_of_a_workload_measures_at_a_time(cluster: Lab) -> None:
    _placed(cluster, "second")
    third = _placed(cluster, "third")
    assert (third.gpu_type.name, third.measures, _told(third)) == ("a100", False, "")


def test_a_type_whose_gpus_are_taken_is_not_measured(cluster: Lab) -> None:
    _placed(cluster, "there", workload="another", gpu_types=["t4"])
    assert _placed(cluster, "second").gpu_type.name == "a100"


def test_emulated_gpus_measure_nothing(cluster: Lab) -> None:
    Node.objects.update(emulated=True)
    assert _placed(cluster, "second").gpu_type.name == "a100"


def test_a_site_may_switch_measurements_off(cluster: Lab, settings: Settings) -> None:
    settings.MOTLEY_MEASURE_RATES = False
    assert _placed(cluster, "second").gpu_type.name == "a100"


@pytest.mark.parametrize("policy", ["fifo", "allox"])
def test_nothing_is_measured_under_a_policy_that_moves_no_running_job(cluster: Lab, policy: str) -> None:
    """It would stay to its end on a type on which it may be slow."""
    cluster.policy(policy, min_run_s=300)
    _placed(cluster, "second")
    assert not Attempt.objects.filter(measures=True).exists()


@pytest.mark.parametrize("changed", [{"restore_s": MEASUREMENT_S + 1}, {"deadline": timezone.now() + WINDOW}])
def test_a_job_that_would_lose_by_it_measures_nothing(cluster: Lab, changed: dict[str, Any]) -> None:
    job = cluster.submit(name="second", workload="new")
    Job.objects.filter(pk=job.pk).update(**changed)
    _round(cluster)
    assert [attempt.measures for attempt in cluster.attempts(job)] == [False]


def test_an_error_of_a_measurement_stops_no_round(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise FloatingPointError

    monkeypatch.setattr(measuring, "choose_cell", failing)
    assert _placed(cluster, "second").measures is False


def test_measurements_end_where_their_part_of_the_gpu_time_is_used(cluster: Lab) -> None:
    gpus, day_s = 3, WINDOW.total_seconds()
    for _ in range(int(GPU_TIME_PART * gpus * day_s / MEASUREMENT_S)):
        _was_measured(cluster, "another")
    assert _placed(cluster, "second").gpu_type.name == "a100"


def test_a_gpu_type_is_tried_once(cluster: Lab) -> None:
    """Its first measurement may have told nothing, as of a program that reports every hour."""
    _was_measured(cluster, "new")
    assert _placed(cluster, "second").gpu_type.name == "a100"


def _was_measured(cluster: Lab, workload: str) -> None:
    """A measurement on the T4 that took its two minutes and ended."""
    job = cluster.submit(name="before", workload=workload)
    t4, end = GpuType.objects.get(name="t4"), timezone.now()
    cluster.attempt(
        job,
        gpu_type=t4,
        measures=True,
        state="ended",
        outcome="preempted",
        started_at=end - WINDOW / 2,
        ended_at=end,
        gone_at=end,
    )
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=end)


@pytest.mark.parametrize(("ran_s", "on"), [(MEASUREMENT_S - 10, "t4"), (MEASUREMENT_S + 10, "a100")])
def test_once_its_rate_is_known_the_job_may_move_sooner_than_others(cluster: Lab, ran_s: float, on: str) -> None:
    second = _placed(cluster, "second")
    start = cluster.now - timedelta(seconds=ran_s)
    Attempt.objects.filter(pk=second.pk).update(state="running", started_at=start)
    Job.objects.filter(pk=second.job_id).update(state="running", started_at=start)
    _measured(cluster, "new", t4=0.1 * A100_RATE)
    _round(cluster)
    assert cluster.attempts(second.job)[-1].gpu_type.name == on


@pytest.mark.usefixtures("plain_static")
def test_the_page_and_the_history_of_the_job_say_so(cluster: Lab, client: Client) -> None:
    second = _placed(cluster, "second")
    client.force_login(second.job.owner)
    page = client.get(reverse("job", args=[second.job_id]), {"tab": "why"}).content.decode()
    assert "It is measuring on T4" in page
    assert second.job.events.get(kind=JobEvent.Kind.PLACED).message.endswith("to measure its rate there")
