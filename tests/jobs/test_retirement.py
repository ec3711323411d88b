"""Retirement in the administration: what has a past is retired, stays in the history, and can be restored."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from audit_app.models import AuditEntry
from cluster_app.errors import GpuTypeRetired, NodeRetired
from cluster_app.feasibility import inventory
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.services import add_node, resume
from insight_app.gpu_occupancy import gpu_counts
from jobs_app.errors import InvalidSpec
from jobs_app.models import Attempt, Job, Team
from jobs_app.submission.submit import submit_job
from tests.service_lab import UNTIL_LET_GO, Lab

NODE, KIND, TEAM = "cluster_app_node", "cluster_app_gputype", "jobs_app_team"


@pytest.fixture
def admin(lab: Lab, plain_static: None) -> Client:
    lab.node("n1", gpus=2)
    client = Client()
    client.force_login(lab.user("root", staff=True))
    return client


@pytest.fixture
def past(lab: Lab, admin: Client) -> Job:
    """A job that ran on `n1`."""
    job = lab.submit()
    lab.until_state(job, Job.State.SUCCEEDED)
    return job


def act(admin: Client, model: str, action: str, row: Any, *, retired: bool = False, **data: Any) -> str:
    address = reverse(f"admin:{model}_changelist") + ("?retired=yes" if retired else "")
    return admin.post(address, {"action": action, "_selected_action": row.pk, **data}, follow=True).content.decode()


def listed(admin: Client, model: str, row: Any, query: str = "") -> bool:
    page = admin.get(reverse(f"admin:{model}_changelist") + query).content.decode()
    return reverse(f"admin:{model}_change", args=[row.pk]) in page


def retired_node(admin: Client) -> Node:
    act(admin, NODE, "retire", Node.objects.get(), reason="sold")
    return Node.objects.get()


def test_a_node_with_a_past_is_retired_instead_of_deleted(admin: Client, past: Job) -> None:
    node = Node.objects.get()
    page = admin.post(reverse(f"admin:{NODE}_delete", args=[node.pk]), {"post": "yes"}).content.decode()
    assert "n1: 1 attempt refers to it" in page
    assert 'value="Retire"' in page
    assert Node.objects.exists()
    act(admin, NODE, "retire", node, reason="sold")
    node.refresh_from_db()
    assert (node.state, node.reason, Attempt.objects.count()) == (Node.State.RETIRED, "sold", 1)
    assert AuditEntry.objects.get(action="node.retire").message == "sold"


def test_a_retired_node_is_no_part_of_the_cluster(admin: Client, past: Job, client: Client) -> None:
    node = retired_node(admin)
    assert (inventory(), gpu_counts(), list(Node.objects.schedulable())) == ([], [], [])
    assert not listed(admin, NODE, node)
    assert listed(admin, NODE, node, "?retired=yes")
    assert listed(admin, NODE, node, "?state__exact=retired")
    assert admin.get("/api/v1/nodes").json()["results"] == []
    assert [row["name"] for row in admin.get("/api/v1/nodes?state=retired").json()["results"]] == ["n1"]
    assert reverse("node", args=["n1"]) not in admin.get(reverse("cluster")).content.decode()
    assert "sold" in admin.get(reverse("node", args=["n1"])).content.decode()


def test_a_node_with_jobs_is_not_retired(lab: Lab, admin: Client) -> None:
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    assert "drain it first" in act(admin, NODE, "retire", Node.objects.get(), reason="sold")
    assert Node.objects.get().state == Node.State.READY
    lab.let_go(job)


def test_a_node_is_retired_for_a_reason(admin: Client) -> None:
    assert "Give a reason" in act(admin, NODE, "retire", Node.objects.get(), reason=" ")
    assert Node.objects.get().state == Node.State.READY


def test_a_retired_node_returns_by_restoration_alone(admin: Client) -> None:
    node = retired_node(admin)
    with pytest.raises(NodeRetired, match="restore it first"):
        resume(node, actor=None)
    with pytest.raises(NodeRetired):
        add_node("n1", node.gpu_type, gpus=4, cpus=64, memory_mib=1024)
    assert admin.post("/api/v1/nodes/n1/drain", {"reason": "fan"}, content_type="application/json").status_code == 409
    assert Node.objects.get().state == Node.State.RETIRED


def test_a_restored_node_runs_jobs_on_the_gpus_that_it_had(lab: Lab, admin: Client) -> None:
    node = retired_node(admin)
    act(admin, NODE, "restore", node, retired=True)
    assert Gpu.objects.present().count() == 2
    lab.until_state(lab.submit(gpus=2), Job.State.SUCCEEDED)


def test_a_gpu_type_is_retired_once_its_nodes_are(admin: Client) -> None:
    kind = GpuType.objects.get()
    page = admin.get(reverse(f"admin:{KIND}_delete", args=[kind.pk])).content.decode()
    assert "a100: 1 node refers to it" in page
    assert "retire these first: n1" in act(admin, KIND, "retire", kind)
    node = retired_node(admin)
    act(admin, KIND, "retire", kind)
    assert not listed(admin, KIND, kind)
    assert admin.get("/api/v1/gpu-types").json()["results"] == []
    assert admin.get("/api/v1/gpu-types/a100").json()["retired_at"]
    assert 'value="a100"' not in admin.get(reverse("new-job")).content.decode()
    with pytest.raises(GpuTypeRetired, match="restore it first"):
        add_node("n2", GpuType.objects.get(), gpus=1, cpus=8, memory_mib=1024)
    assert "The GPU type a100 is retired" in act(admin, NODE, "restore", node, retired=True)
    act(admin, KIND, "restore", kind, retired=True)
    assert GpuType.objects.get().retired_at is None


def test_a_gpu_type_without_a_past_is_deleted(admin: Client) -> None:
    kind = GpuType.objects.create(name="t4", memory_mib=16_384)
    admin.post(reverse(f"admin:{KIND}_delete", args=[kind.pk]), {"post": "yes"})
    assert not GpuType.objects.filter(name="t4").exists()


def test_a_team_with_a_past_is_retired_when_its_jobs_have_ended(lab: Lab, admin: Client, past: Job) -> None:
    team = past.team
    assert "1 job" in admin.get(reverse(f"admin:{TEAM}_delete", args=[team.pk])).content.decode()
    waiting = lab.submit(UNTIL_LET_GO)
    assert "cancel it, and retire the team then" in act(admin, TEAM, "retire", team)
    lab.running(waiting)
    lab.let_go(waiting)
    lab.until_state(waiting, Job.State.SUCCEEDED)
    act(admin, TEAM, "retire", team)
    with pytest.raises(InvalidSpec, match="is retired"):
        submit_job({"name": "x", "command": "true", "gpus": 1, "team": team.name}, owner=past.owner)
    act(admin, TEAM, "restore", Team.objects.get(), retired=True)
    assert lab.submit().team == team
