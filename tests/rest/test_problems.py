"""Every refusal below /api is a problem document: with a status, a code, and pointers to what is wrong."""

from typing import Any

import pytest
from rest_framework.request import Request
from rest_framework.test import APIClient, APIRequestFactory

from cluster_app.errors import ClusterError, ReasonMissing
from config.problems import answer
from jobs_app.errors import Conflict, InvalidSpec, JobsError, NotAllowed
from scheduler_app.errors import LeaseLost, NotReplayable, SchedulerError
from tests.service_lab import Lab
from web.rest.errors import faults_of


def is_a_problem(answer: Any, status: int, code: str) -> bool:
    document = answer.json()
    assert answer["Content-Type"] == "application/problem+json"
    assert document.keys() == {"type", "title", "status", "detail", "instance", "code", "errors", "request_id"}
    assert document["type"] == f"urn:motley:problem:{code}"
    return (answer.status_code, document["status"], document["code"]) == (status, status, code)


def test_without_a_token(db: None, api: APIClient) -> None:
    refused = api.get("/api/v1/jobs")
    assert is_a_problem(refused, 401, "not_authenticated")
    assert "Authorization: Bearer TOKEN" in refused.json()["detail"]


def test_the_root_names_the_lists(db: None, api: APIClient, ada: APIClient) -> None:
    found = api.get("/api/v1/")
    assert found.status_code == 200
    for name in ("me", "jobs", "nodes", "schema"):
        assert ada.get(found.json()[name]).status_code == 200


def test_a_verb_that_the_route_does_not_know(ada: APIClient) -> None:
    answer = ada.put("/api/v1/jobs")
    assert is_a_problem(answer, 405, "method_not_allowed")
    assert "GET" in answer["Allow"]


def test_a_method_that_is_refused_is_told_with_those_there_are(ada: APIClient, lab: Lab) -> None:
    job = ada.delete(f"/api/v1/jobs/{lab.submit().pk}").json()["detail"]
    assert job.startswith("This address does not take DELETE, but GET, PATCH. Verbs of it are POST ")
    assert "…/cancel" in job
    assert ada.put("/api/v1/jobs").json()["detail"] == "This address does not take PUT, but GET, POST."
    assert ada.delete("/api/v1/usage").json()["detail"] == "This address does not take DELETE, but GET."


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("jobs/123", "job '123'"),
        ("jobs/01910000-0000-7000-8000-000000000000", "job '01910000-0000-7000-8000-000000000000'"),
        ("jobs/01910000-0000-7000-8000-000000000000/gpus", "job '01910000-0000-7000-8000-000000000000'"),
        ("nodes/nope", "node 'nope'"),
        ("windows/77", "time window '77'"),
        ("lab/runs/77", "lab run '77'"),
    ],
)
def test_what_is_not_found_is_named(ada: APIClient, address: str, what: str) -> None:
    answer = ada.get(f"/api/v1/{address}")
    assert is_a_problem(answer, 404, "not_found")
    assert answer.json()["detail"] == f"There is no {what}, or you may not see it."


def test_an_attempt_that_a_job_does_not_have_is_named(ada: APIClient, lab: Lab) -> None:
    for address in ("logs", "merged-log"):
        answer = ada.get(f"/api/v1/jobs/{lab.submit().pk}/{address}?attempt=7")
        assert (answer.status_code, answer.json()["detail"]) == (404, "The job has no attempt 7.")


def test_an_answer_that_cannot_be_had(ada: APIClient) -> None:
    assert is_a_problem(ada.get("/api/v1/jobs", headers={"accept": "application/xml"}), 406, "not_acceptable")


def test_a_body_of_another_kind(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", "<job/>", content_type="application/xml")
    assert is_a_problem(answer, 415, "unsupported_media_type")


def test_a_body_that_is_no_json(ada: APIClient) -> None:
    assert is_a_problem(ada.post("/api/v1/jobs", "{", content_type="application/json"), 400, "parse_error")


@pytest.mark.parametrize("address", ["/api", "/api/", "/api/v2/jobs", "/api/v1/jbos"])
def test_an_address_that_is_none(ada: APIClient, address: str) -> None:
    assert is_a_problem(ada.get(address, follow=True), 404, "not_found")


def test_a_host_that_is_not_ours(ada: APIClient) -> None:
    assert is_a_problem(ada.get("/api/v1/jobs", headers={"host": "evil.example"}), 400, "bad_request")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (JobsError("no"), 400),
        (NotAllowed("no"), 403),
        (Conflict("no"), 409),
        (InvalidSpec.at("/gpus", "invalid", "no"), 422),
        (ClusterError("no"), 409),
        (ReasonMissing(), 422),
        (SchedulerError("no"), 409),
        (NotReplayable("no"), 409),
        (LeaseLost("no"), 503),
    ],
)
def test_every_error_of_ours_has_a_status(error: Exception, status: int) -> None:
    assert _answer(error).status_code == status


def test_what_is_away_for_a_while_says_when_to_come_back() -> None:
    assert int(_answer(LeaseLost("no"))["Retry-After"]) > 0


def test_a_missing_reason_is_pointed_at() -> None:
    assert [fault["pointer"] for fault in _answer(ReasonMissing()).data["errors"]] == ["/reason"]


def test_pointers_escape_what_json_pointers_escape() -> None:
    faults = list(faults_of({"tags": {"a/b": {"c~d": ["too long"]}}}))
    assert [fault["pointer"] for fault in faults] == ["/tags/a~1b/c~0d"]


def _answer(error: Exception) -> Any:
    response = answer(error, {"request": Request(APIRequestFactory().get("/api/v1/x"))})
    assert response is not None
    return response


def test_a_fault_without_a_code_of_its_own_has_one(ada: APIClient) -> None:
    faults = ada.get("/api/v1/jobs?tag=").json()["errors"]
    assert [fault["code"] for fault in faults] == ["invalid"]


@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/policies/current", "/api/v1/nodes/n1", "/api/v1/me"])
def test_options_are_in_the_description_and_nowhere_else(ada: APIClient, address: str) -> None:
    assert is_a_problem(ada.options(address), 405, "method_not_allowed")
