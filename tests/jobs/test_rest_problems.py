"""Even what no route answers is answered in JSON, with what to do."""

import pytest
from rest_framework.test import APIClient

from tests.service_lab import Lab


def test_a_misspelt_address_is_a_problem_document(api: APIClient) -> None:
    answer = api.get("/api/v1/jbos")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert "/api/docs/" in answer.json()["detail"]


def test_a_body_that_is_too_large_is_refused_with_the_limit(api: APIClient, lab: Lab) -> None:
    api.force_authenticate(lab.user())
    answer = api.post("/api/v1/jobs", data=b'"' + b"x" * 3_000_000 + b'"', content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "1,048,576 bytes" in answer.json()["detail"]


def test_a_quota_fault_names_the_team(lab: Lab, api: APIClient) -> None:
    lab.node("n1", gpus=4)
    lab.team("vision", max_gpus=2)
    api.force_authenticate(lab.user())
    answer = api.post("/api/v1/jobs", {"name": "wide", "command": "true", "gpus": 4}, format="json")
    assert answer.json()["errors"][0]["detail"] == "Team vision may use at most 2 GPUs at once. Request 2 or fewer."


@pytest.mark.parametrize(
    ("limit", "who"), [("max_gpus", "an administrator"), ("max_gpus_per_member", "a lead of the team")]
)
def test_where_a_team_may_use_no_gpu_the_remedy_is_not_to_request_none(
    lab: Lab, api: APIClient, limit: str, who: str
) -> None:
    lab.node("n1", gpus=4)
    lab.team("vision", **{limit: 0})
    api.force_authenticate(lab.user())
    answer = api.post("/api/v1/jobs", {"name": "any", "command": "true", "gpus": 1}, format="json")
    remedy = f"Ask {who} to raise the limit, or submit it to another team."
    assert answer.json()["errors"][0]["detail"].endswith(remedy)
