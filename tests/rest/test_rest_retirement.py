"""Retirement over REST: nodes, GPU types and teams are retired and restored by administrators, and not while in use."""

import pytest
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from cluster_app.models import Gpu, GpuType, Node
from jobs_app.models import Job, Team
from tests.service_lab import Lab

NODE, KIND, TEAM = "/api/v1/nodes/n1", "/api/v1/gpu-types/a100", "/api/v1/teams/vision"


def noted() -> list[str]:
    of_retirement = AuditEntry.objects.filter(action__regex="(retire|restore)$")
    return list(of_retirement.order_by("pk").values_list("action", flat=True))


def test_a_node_and_then_its_type_are_retired_and_restored_the_other_way_round(root: APIClient) -> None:
    assert root.post(f"{KIND}/retire").json()["detail"].endswith("retire these first: n1.")
    gone = root.post(f"{NODE}/retire", {"reason": "sold"}, format="json")
    assert (gone.status_code, gone.json()["state"], gone.json()["reason"]) == (202, "retired", "sold")
    assert root.post(f"{KIND}/retire").json()["retired_at"] is not None
    early = root.post(f"{NODE}/restore")
    assert (early.status_code, "motley gpu-type restore a100" in early.json()["detail"]) == (409, True)
    assert root.post(f"{KIND}/restore").json()["retired_at"] is None
    assert root.post(f"{NODE}/restore").json()["state"] == "ready"
    assert Gpu.objects.present().count() == 4
    done = ["node.retire", "gpu_type.retire", "gpu_type.restore", "node.restore"]
    assert noted() == done


def test_what_a_job_uses_is_not_retired(cluster: Lab, running: Job, root: APIClient) -> None:
    node = root.post(f"{NODE}/retire", {"reason": "sold"}, format="json")
    team = root.post(f"{TEAM}/retire")
    assert (node.status_code, node.json()["code"], "drain it first" in node.json()["detail"]) == (
        409,
        "still_in_use",
        True,
    )
    assert (team.status_code, team.json()["code"], "cancel it" in team.json()["detail"]) == (409, "team_in_use", True)
    assert Node.objects.get().state == Node.State.READY
    assert Team.objects.get(name="vision").retired_at is None


def test_a_team_is_retired_and_restored(cluster: Lab, ada: APIClient, root: APIClient) -> None:
    assert root.post(f"{TEAM}/retire").json()["retired_at"] is not None
    refused = ada.post("/api/v1/jobs", {"name": "net", "command": "true", "team": "vision"}, format="json")
    assert refused.status_code == 422
    assert root.post(f"{TEAM}/restore").json()["retired_at"] is None


@pytest.mark.parametrize("verb", [f"{NODE}/restore", f"{KIND}/restore", f"{TEAM}/restore"])
def test_what_is_not_retired_is_restored_without_an_effect(cluster: Lab, root: APIClient, verb: str) -> None:
    cluster.team()
    assert root.post(verb).status_code == 202
    assert noted() == []


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [
        (f"{NODE}/retire", {}, "/reason"),
        (f"{NODE}/retire", {"reason": " "}, "/reason"),
        (f"{NODE}/restore", {"reason": "back"}, "/reason"),
        (f"{KIND}/retire", {"reason": "old"}, "/reason"),
        (f"{TEAM}/retire", {"when": "now"}, "/when"),
    ],
)
def test_a_body_that_is_not_taken_is_refused_by_field(
    cluster: Lab, root: APIClient, verb: str, body: dict[str, str], pointer: str
) -> None:
    cluster.team()
    answer = root.post(verb, body, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert noted() == []
    assert GpuType.objects.current().exists()
