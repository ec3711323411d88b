"""Nodes over REST: which there are, out of service and back, and when one will be empty."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from cluster_app.models import Node, NodeEvent
from cluster_app.services import cordon, drain
from insight_app.explain.drain_estimate import occupancy
from jobs_app.models import Attempt, Job
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

VERBS = ["cordon", "drain", "resume"]


def names(answer) -> list[str]:
    return [node["name"] for node in answer.json()["results"]]


# -- lists -------------------------------------------------------------------------------------------------------


def test_nodes_are_narrowed_by_state_health_and_type(cluster: Lab, ada: APIClient) -> None:
    cluster.node("n2", "v100")
    cordon(cluster.node("n3"), reason="fan", actor=None)
    Node.objects.filter(name="n2").update(health="lost")
    assert names(ada.get("/api/v1/nodes?state=cordoned")) == ["n3"]
    assert names(ada.get("/api/v1/nodes?state=cordoned&state=ready")) == ["n1", "n2", "n3"]
    assert names(ada.get("/api/v1/nodes?health=lost")) == ["n2"]
    assert names(ada.get("/api/v1/nodes?gpu_type=a100")) == ["n1", "n3"]


def test_a_state_that_is_none_is_refused(ada: APIClient) -> None:
    answer = ada.get("/api/v1/nodes?state=broken")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/state")


def test_as_many_questions_for_many_nodes_as_for_one(
    cluster: Lab, ada: APIClient, django_assert_num_queries, django_assert_max_num_queries
) -> None:
    ada.get("/api/v1/nodes")  # the first use of a token is noted
    with django_assert_max_num_queries(8) as asked:
        ada.get("/api/v1/nodes")
    for n in range(2, 12):
        cluster.node(f"n{n}")
    with django_assert_num_queries(len(asked)):
        assert len(ada.get("/api/v1/nodes").json()["results"]) == 11


# -- verbs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "state"), [("cordon", "cordoned"), ("drain", "draining")])
def test_a_node_is_taken_out_with_a_reason(root: APIClient, verb: str, state: str) -> None:
    answer = root.post(f"/api/v1/nodes/n1/{verb}", {"reason": "new fan"}, format="json")
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (202, state, "new fan")


def test_a_node_comes_back(cluster: Lab, root: APIClient) -> None:
    cordon(Node.objects.get(), reason="fan", actor=None)
    answer = root.post("/api/v1/nodes/n1/resume")
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (202, "ready", "")


@pytest.mark.parametrize("verb", ["cordon", "drain"])
@pytest.mark.parametrize("reason", ["", "  ", None, 0, "x" * 201, "nul \0"])
def test_without_a_reason_it_stays(root: APIClient, verb: str, reason: object) -> None:
    answer = root.post(f"/api/v1/nodes/n1/{verb}", {"reason": reason}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert Node.objects.get().state == "ready"


@pytest.mark.parametrize("body", [{}, [], "fan"])
def test_a_body_without_one_is_refused(root: APIClient, body: object) -> None:
    assert root.post("/api/v1/nodes/n1/drain", body, format="json").status_code == 422


def test_a_misspelt_field_is_pointed_at(root: APIClient) -> None:
    answer = root.post("/api/v1/nodes/n1/drain", {"reason": "fan", "raeson": "fan"}, format="json")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/raeson"]


@pytest.mark.parametrize("verb", VERBS)
def test_only_staff_by_a_token_for_it_may(cluster: Lab, ada: APIClient, verb: str) -> None:
    staff = cluster.user("rosa", "admins", staff=True)
    for client in (ada, caller(cluster.user(), Scope.ADMIN), caller(staff, Scope.SUBMIT)):
        assert client.post(f"/api/v1/nodes/n1/{verb}", {"reason": "fan"}, format="json").status_code == 403


@pytest.mark.parametrize("verb", VERBS)
def test_the_actor_and_the_reason_are_recorded(root: APIClient, verb: str) -> None:
    if verb == "resume":
        Node.objects.update(state=Node.State.CORDONED, reason="noise")
    root.post(f"/api/v1/nodes/n1/{verb}", {"reason": "fan"}, format="json", headers={"x-request-id": "r1"})
    entry = AuditEntry.objects.get(target="n1")
    assert (entry.action, entry.actor_name, entry.door) == (f"node.{verb}", "root", "rest")
    assert (entry.target, entry.message, entry.request_id) == ("n1", "fan", "r1")
    event = NodeEvent.objects.first()
    assert event is not None
    assert (str(event.actor), event.message) == ("root", "fan")


# -- when it will be empty ---------------------------------------------------------------------------------------


def test_a_node_with_a_job_is_not_empty(running: Job, ada: APIClient) -> None:
    node = ada.get("/api/v1/nodes/n1").json()
    assert (node["jobs_running"], node["empty"], node["empty_at"]) == (1, False, None)


def test_a_node_without_one_is(cluster: Lab, ada: APIClient) -> None:
    node = ada.get("/api/v1/nodes/n1").json()
    assert (node["jobs_running"], node["empty"], node["empty_at"]) == (0, True, None)


def test_a_drained_node_is_empty_after_the_longest_grace(running: Job, ada: APIClient) -> None:
    Job.objects.update(grace_s=120)
    before = timezone.now()
    drain(Node.objects.get(), reason="fan", actor=None)
    at = datetime.fromisoformat(ada.get("/api/v1/nodes/n1").json()["empty_at"])
    assert before + timedelta(seconds=120) <= at <= timezone.now() + timedelta(seconds=120)


def test_a_drained_node_is_empty_in_the_end(cluster: Lab, launched: Job, ada: APIClient) -> None:
    drain(Node.objects.get(), reason="fan", actor=None)
    cluster.until(lambda: ada.get("/api/v1/nodes/n1").json()["empty"])


NOW = datetime(2026, 1, 1, tzinfo=timezone.get_default_timezone())


def on_a_node(**of_job: object) -> Attempt:
    """Running for an hour, at 2 steps/s."""
    job = Job(**{"total_steps": 10_000, "grace_s": 60, "step": 1000} | of_job)  # written with the attempt's
    return Attempt(job=job, state="running", rate=2.0, started_at=NOW - timedelta(hours=1), gpu_count=1, step=1000)


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        ([on_a_node()], 4500),
        ([on_a_node(), on_a_node(total_steps=20_000)], 9500),
        ([on_a_node(time_limit_s=4000)], 400),
        ([on_a_node(total_steps=None, time_limit_s=4000)], 400),
        ([on_a_node(total_steps=500)], 0),
    ],
)
def test_a_cordoned_node_is_empty_when_its_jobs_are_done(attempts: list[Attempt], seconds: int) -> None:
    assert occupancy("cordoned", attempts, NOW).empty_at == NOW + timedelta(seconds=seconds)


def test_with_a_job_of_unknown_length_the_end_of_a_drain_is_unknown() -> None:
    assert occupancy("cordoned", [on_a_node(), on_a_node(total_steps=None)], NOW).empty_at is None
