"""A job that is not submitted yet: what it would get, after the same checks."""

from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from cluster_app.feasibility_cache import ACCEPTANCE
from cluster_app.models import GpuType
from jobs_app.models import Job
from tests.rest_callers import SPEC, Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab


def planned(client: APIClient, **spec: object) -> Any:
    return client.post("/api/v1/jobs?dry_run=true", SPEC | spec, format="json")


def test_a_plan_says_the_rate_and_the_cost_on_each_type(cluster: Lab, ada: APIClient) -> None:
    cluster.node("t1", "t4", gpus=2)
    answer = planned(ada, rates={"a100": 10, "t4": 2}, total_steps=3600)
    options = answer.json()["options"]
    assert answer.status_code == 200
    assert [(option["gpu_type"], option["rate"], option["run_seconds"]) for option in options] == [
        ("a100", 10.0, 360.0),
        ("t4", 2.0, 1800.0),
    ]
    assert [(option["source"], option["can_start_now"], option["preferred"]) for option in options] == [
        ("declared", True, True),
        ("declared", True, False),
    ]


def test_a_plan_says_which_options_are_pareto_optimal(cluster: Lab, ada: APIClient) -> None:
    cluster.node("t1", "t4", gpus=2)
    GpuType.objects.filter(name="a100").update(price_per_hour=5)
    GpuType.objects.filter(name="t4").update(price_per_hour=1)
    told = planned(ada, rates={"a100": 10, "t4": 4}, total_steps=72_000).json()["cost_and_time"]
    a100 = {"gpu_type": "a100", "gpus": 1, "run_seconds": 7200.0, "cost": 10.0}
    t4 = {"gpu_type": "t4", "gpus": 1, "run_seconds": 18_000.0, "cost": 5.0}
    assert told == {
        "options": [
            a100 | {"preferred": True, "pareto_optimal": True, "others_wait_h": None},
            t4 | {"preferred": False, "pareto_optimal": True, "others_wait_h": None},
        ],
        "unit": "price",
        "note": "",
        "why_none": "",
    }


def test_a_plan_without_a_known_run_time_says_so_in_place_of_costs(ada: APIClient) -> None:
    told = planned(ada).json()["cost_and_time"]
    assert (told["options"], "total steps" in told["why_none"]) == ([], True)


def test_nothing_is_written(ada: APIClient) -> None:
    planned(ada)
    assert not Job.objects.exists()


def test_the_spec_comes_back_as_it_was_understood(ada: APIClient) -> None:
    spec = planned(ada, time_limit="120m", array={"end": 3}).json()["spec"]
    assert (spec["team"], spec["time_limit"], spec["array"]) == (
        "vision",
        "2h",
        {"start": 0, "end": 3, "at_a_time": None},
    )


def test_the_faults_are_those_of_a_submission(ada: APIClient) -> None:
    spec = SPEC | {"gpus": 100, "weight": 9}
    plan, submission = (ada.post(f"/api/v1/jobs{query}", spec, format="json") for query in ("?dry_run=true", ""))
    assert plan.status_code == submission.status_code == 422
    assert plan.json()["errors"] == submission.json()["errors"]


def test_a_busy_cluster_says_why_not_now(cluster: Lab, ada: APIClient) -> None:
    cluster.running(cluster.submit(UNTIL_LET_GO, gpus=3))
    (option,) = planned(ada, gpus=2).json()["options"]
    assert (option["can_start_now"], option["free_gpus"], option["reason"]) == (False, 1, "1 of 2 GPUs free")


def test_without_the_wish_the_job_is_submitted(ada: APIClient) -> None:
    assert ada.post("/api/v1/jobs?dry_run=false", SPEC, format="json").status_code == 201


def test_a_wish_that_is_neither_is_refused(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs?dry_run=perhaps", SPEC, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/dry_run")
    assert not Job.objects.exists()


def test_a_token_to_read_does_not_plan(cluster: Lab) -> None:
    assert planned(caller(cluster.user(), Scope.READ)).status_code == 403


def test_a_plan_costs_the_same_however_many_jobs_wait(cluster: Lab, ada: APIClient) -> None:
    ada.get("/api/v1/jobs")
    counts = []
    for _ in range(2):
        ACCEPTANCE.forget()
        with CaptureQueriesContext(connection) as queries:
            assert planned(ada).status_code == 200
        counts.append(len(queries))
        cluster.submit(array={"end": 99})
    assert counts[0] == counts[1] <= 16, "two for the length of a job that states no steps, one for prices"
