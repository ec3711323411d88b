"""Many jobs in one submission: all of them or none, each fault with its place, in order."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from cluster_app.feasibility_cache import ACCEPTANCE
from database.bulk_insert import WORTH_COPYING
from jobs_app.models import Job, JobTag, Reason
from jobs_app.submission.batch import LARGEST_BATCH
from tests.rest_callers import SPEC
from tests.service_lab import Lab


def batch(client: APIClient, *jobs: dict[str, Any]) -> Any:
    return client.post("/api/v1/jobs/batch", {"jobs": [SPEC | job for job in jobs]}, format="json")


def faults_of(answer: Any) -> list[tuple[str, str]]:
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


def test_the_ids_come_in_the_order_of_the_jobs(ada: APIClient) -> None:
    answer = batch(ada, *({"name": f"job-{n}"} for n in range(600)))
    ids = answer.json()["ids"]
    assert (answer.status_code, answer.json()["count"], sorted(ids)) == (201, 600, ids)
    names = dict(Job.objects.values_list("pk", "name"))
    assert [names[UUID(pk)] for pk in ids] == [f"job-{n}" for n in range(600)]


@pytest.mark.parametrize("among", [0, WORTH_COPYING])
def test_each_job_is_as_if_it_had_come_alone(cluster: Lab, ada: APIClient, among: int) -> None:
    parent = cluster.submit()
    spec = SPEC | {
        "command": "printf 'a\\tb\tc\\n' \\\n  | grep \"é\"\r",
        "gpus": {"min": 1, "max": 4},
        "env": {"A": "1\n\\N", "EMPTY": ""},
        "rates": {"a100": 3},
        "tags": {"project": "x"},
        "deadline": "2030-01-01T00:00:00Z",
        "checkpoint": {"grace_seconds": 5},
        "after": [{"job": str(parent.pk), "on": "end"}],
    }
    alone = ada.post("/api/v1/jobs", spec, format="json").json()
    *_, pk = ada.post("/api/v1/jobs/batch", {"jobs": [*[SPEC] * among, spec]}, format="json").json()["ids"]
    of_many = ada.get(f"/api/v1/jobs/{pk}").json()
    own = {"id", "etag", "created_at", "updated_at"}
    assert {k: v for k, v in of_many.items() if k not in own} == {k: v for k, v in alone.items() if k not in own}
    assert Job.objects.get(pk=pk).env == {"A": "1\n\\N", "EMPTY": ""}


def test_each_job_has_its_tags_and_its_history(ada: APIClient) -> None:
    batch(ada, {"tags": {"n": "0"}}, {"tags": {"n": "1"}})
    assert list(JobTag.objects.order_by("job_id").values_list("value", flat=True)) == ["0", "1"]
    assert [[event.kind for event in job.events.all()] for job in Job.objects.all()] == [["submitted"]] * 2


def test_one_fault_and_no_job_is_submitted(ada: APIClient) -> None:
    answer = batch(ada, {}, {"gpus": 0}, {})
    assert (answer.status_code, faults_of(answer), Job.objects.count()) == (422, [("/jobs/1/gpus", "invalid")], 0)


def test_every_fault_of_every_job_is_said(ada: APIClient) -> None:
    answer = batch(ada, {"gpus": 100}, {"gpu": 1, "name": ""}, {"weight": 9}, {"array": {"end": 3}})
    assert faults_of(answer) == [
        ("/jobs/0/gpus", "gang_too_large"),
        ("/jobs/1/gpu", "unknown"),
        ("/jobs/1/name", "blank"),
        ("/jobs/2/weight", "weight_too_large"),
        ("/jobs/3/array", "array_in_batch"),
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({}, "/jobs"), ([], "/jobs"), ({"jobs": []}, "/jobs"), ({"jobs": {}}, "/jobs"), ({"jobs": [1]}, "/jobs/0")],
    ids=str,
)
def test_a_body_that_is_no_batch_is_refused(ada: APIClient, body: Any, pointer: str) -> None:
    answer = ada.post("/api/v1/jobs/batch", body, format="json")
    assert (answer.status_code, faults_of(answer)[0][0]) == (422, pointer)


def test_one_job_too_many_is_refused_before_any_is_read(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs/batch", {"jobs": [{}] * (LARGEST_BATCH + 1)}, format="json")
    assert (answer.status_code, answer.json()["code"], faults_of(answer)) == (422, "too_many", [("/jobs", "too_many")])


def test_a_batch_may_be_larger_than_other_requests(ada: APIClient) -> None:
    assert batch(ada, *([{"env": {"LONG": "x" * 60_000}}] * 50)).status_code == 201


def test_there_is_a_largest_body(ada: APIClient) -> None:
    size = str(64 * 1024 * 1024 + 1)
    answer = ada.generic("POST", "/api/v1/jobs/batch", b"{}", "application/json", CONTENT_LENGTH=size)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_batch_takes_as_many_queries_for_ten_jobs_as_for_two(cluster: Lab, ada: APIClient) -> None:
    ada.get("/api/v1/jobs")  # the first use of a token is noted
    counts = []
    for size in (2, 10):
        ACCEPTANCE.forget()
        with CaptureQueriesContext(connection) as queries:
            assert batch(ada, *({"name": f"job-{n}"} for n in range(size))).status_code == 201
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_batch_is_one_entry_of_the_audit_list(ada: APIClient) -> None:
    batch(ada, {}, {})
    assert list(AuditEntry.objects.filter(action__startswith="job").values_list("action", "target")) == [
        ("job.batch", "2 jobs")
    ]


# -- jobs that wait for others of their batch --------------------------------------------------------------------


def after(*jobs: str) -> dict[str, Any]:
    return {"after": [{"job": job} for job in jobs]}


def test_a_job_may_wait_for_earlier_ones_of_its_batch(ada: APIClient) -> None:
    first, second, third = batch(ada, {}, after("#0"), after("#0", "#1")).json()["ids"]
    job = Job.objects.get(pk=third)
    assert job.reason == Reason.DEPENDENCY
    assert {str(need.parent_id) for need in job.needs.all()} == {first, second}


def test_and_for_others_that_were_there_before(cluster: Lab, ada: APIClient) -> None:
    parent = str(cluster.submit().pk)
    assert batch(ada, {}, after("#0", parent)).status_code == 201


@pytest.mark.parametrize(
    ("jobs", "pointer", "code"),
    [
        ([after("#1"), {}], "/jobs/0/after/0/job", "cycle"),
        ([{}, after("#1")], "/jobs/1/after/0/job", "cycle"),
        ([after("#1"), after("#0")], "/jobs/0/after/0/job", "cycle"),
        ([{}, after("#7")], "/jobs/1/after/0/job", "no_such_job"),
        ([{}, after("#0", "#0")], "/jobs/1/after/1/job", "named_twice"),
        ([{}, after("#x")], "/jobs/1/after/0/job", "invalid"),
        ([{}, after("0190c3a2-1b2c-7def-8000-000000000000")], "/jobs/1/after/0/job", "no_such_job"),
    ],
)
def test_what_cannot_be_waited_for_is_a_fault(
    ada: APIClient, jobs: list[dict[str, Any]], pointer: str, code: str
) -> None:
    assert faults_of(batch(ada, *jobs)) == [(pointer, code)]


def test_outside_of_a_batch_there_are_no_such_names(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", SPEC | after("#0"), format="json")
    assert (answer.status_code, faults_of(answer)) == (422, [("/after/0/job", "invalid")])


def test_of_thousands_of_faults_the_first_are_listed(ada: APIClient) -> None:
    answer = batch(ada, *[{"gpus": -1}] * 5000)
    faults = answer.json()["errors"]
    assert (answer.status_code, faults[-1]["code"], faults[0]["pointer"][:7]) == (422, "more_faults", "/jobs/0")
    assert len(faults) == 101
