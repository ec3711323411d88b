"""What a job would get, before it is submitted: the plan says what the scheduler will count on."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cluster_app.feasibility_cache import ACCEPTANCE
from cluster_app.services import drain
from insight_app.explain.cost_and_time import UNKNOWN_RATE
from insight_app.explain.decisions import explain_job
from insight_app.explain.dry_run import dry_run
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from tests.service_lab import UNTIL_LET_GO, Lab

SPEC = {"name": "net", "command": "true", "gpus": 2}


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("a1", gpus=4)
    lab.node("v1", "v100", gpus=2)
    lab.node("v2", "v100", gpus=2)
    return lab


def options(lab: Lab, **spec: Any) -> dict[str, dict[str, Any]]:
    """By GPU type."""
    return {option["gpu_type"]: option for option in dry_run(SPEC | spec, owner=lab.user())["options"]}


def test_each_gpu_type_is_listed_with_its_rate_and_cost(cluster: Lab) -> None:
    found = options(cluster, rates={"a100": 20.0}, total_steps=72_000)
    a100 = found["a100"]
    assert (a100["rate"], a100["source"], a100["preferred"]) == (20.0, "declared", True)
    assert (a100["run_seconds"], a100["cost"]) == (3600.0, a100["cost_per_hour"])
    assert found["v100"]["source"] == "estimated"


def test_a_rate_of_which_nothing_is_known_is_not_told(cluster: Lab) -> None:
    plan = dry_run(SPEC | {"name": "hello", "command": "echo hi", "total_steps": 100}, owner=cluster.user())
    found = {option["gpu_type"]: option for option in plan["options"]}
    a100 = found["a100"]
    assert (a100["rate"], a100["source"], a100["run_seconds"], a100["cost"]) == (None, "assumed", None, None)
    assert (a100["nodes"], a100["can_start_now"], a100["preferred"]) == (1, True, True)
    assert "not known before it has reported progress" in plan["note"]
    assert (plan["cost_and_time"].options, plan["cost_and_time"].why_none) == ([], UNKNOWN_RATE)


def test_a_rate_that_is_known_of_a_type_that_is_away_says_how_fast_others_are(cluster: Lab) -> None:
    drain(cluster.node("t1", "t4", gpus=1), reason="fan", actor=None)
    found = options(cluster, rates={"t4": 3.0})
    assert found["a100"]["rate"] > 3.0
    assert found["a100"]["source"] == "estimated"


def test_without_steps_no_end_is_promised(cluster: Lab) -> None:
    assert (options(cluster)["a100"]["run_seconds"], options(cluster)["a100"]["cost"]) == (None, None)


def test_the_rates_are_those_that_the_round_counts_on(cluster: Lab) -> None:
    spec = SPEC | {"rates": {"v100": 10.0}, "command": UNTIL_LET_GO}
    planned = {o["gpu_type"]: (o["rate"], o["source"]) for o in dry_run(spec, owner=cluster.user())["options"]}
    job = cluster.submit(**spec)
    cluster.decide()
    used = explain_job(job, timezone.now())["rates_used"]
    assert {rate["gpu_type"]: (rate["rate"], rate["source"]) for rate in used} == planned


def test_what_has_room_can_start_now(cluster: Lab) -> None:
    found = options(cluster)
    assert all(option["can_start_now"] and not option["reason"] for option in found.values())


def test_what_is_held_is_not_free(cluster: Lab) -> None:
    cluster.recorded_as_running(cluster.submit(gpus=3, gpu_types=["a100"]))
    a100 = options(cluster)["a100"]
    assert (a100["can_start_now"], a100["free_gpus"], a100["reason"]) == (False, 1, "1 of 2 GPUs free")


def test_scattered_gpus_hold_no_gang(cluster: Lab) -> None:
    for _ in range(2):
        cluster.recorded_as_running(cluster.submit(gpus=1, gpu_types=["v100"], uneven_gang=False, cpus_per_gpu=33))
    v100 = options(cluster)["v100"]
    assert (v100["can_start_now"], "fragmented" in v100["reason"]) == (False, True)


def test_cpus_that_are_taken_keep_a_job_from_starting(cluster: Lab) -> None:
    cluster.recorded_as_running(cluster.submit(gpus=1, gpu_types=["a100"], cpus_per_gpu=60))
    assert "CPUs and memory for only" in options(cluster, cpus_per_gpu=10)["a100"]["reason"]


def test_a_type_that_will_not_do_says_why(cluster: Lab) -> None:
    found = options(cluster, gpus=1, gpu_types=["v100"])
    assert (found["a100"]["rate"], found["a100"]["reason"]) == (None, "not allowed by the job")


def test_a_node_out_of_service_offers_nothing(cluster: Lab) -> None:
    drain(cluster.node("a1", gpus=4), reason="fan", actor=None)
    assert options(cluster)["a100"]["reason"] == "no node of this type is in service"


def test_a_quota_keeps_a_job_from_starting(cluster: Lab) -> None:
    cluster.recorded_as_running(cluster.submit(gpus=2))
    cluster.team().__class__.objects.update(max_gpus=3)
    assert "may use 3 GPUs at once; 2 are in use" in options(cluster)["v100"]["reason"]


@pytest.mark.parametrize("most", [4, 8])
def test_an_elastic_job_is_shown_at_its_least_and_its_fastest(cluster: Lab, most: int) -> None:
    found = dry_run(SPEC | {"gpus": {"min": 1, "max": most}}, owner=cluster.user())["options"]
    assert {(o["gpu_type"], o["gpus"]) for o in found} == {("a100", 1), ("a100", 4), ("v100", 1), ("v100", 4)}
    assert (found[0]["gpu_type"], found[0]["gpus"], found[0]["preferred"]) == ("a100", 4, True)


def test_a_faulty_spec_has_the_faults_of_a_submission(cluster: Lab) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        dry_run(SPEC | {"gpus": 99}, owner=cluster.user())
    assert refusal.value.faults[0]["pointer"] == "/gpus"


def test_nothing_is_written(cluster: Lab) -> None:
    options(cluster)
    assert not Job.objects.exists()


def test_it_asks_as_many_queries_however_many_jobs_wait(cluster: Lab) -> None:
    ada = cluster.user()
    ACCEPTANCE.forget()
    with CaptureQueriesContext(connection) as few:
        dry_run(SPEC, owner=ada)
    for _ in range(20):
        cluster.submit()
    cluster.decide()
    ACCEPTANCE.forget()
    with CaptureQueriesContext(connection) as many:
        dry_run(SPEC, owner=ada)
    assert len(many) == len(few)
