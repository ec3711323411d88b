"""Slow GPUs: found by the rates of attempts, told on pages, over REST and as metrics, avoided by gangs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting_app.gpu_watch.speeds import device_slots, is_due, note_gpu_speeds
from cluster_app.models import Engine, Gpu, Node, NodeEvent
from cluster_app.services import add_node
from jobs_app.models import Attempt, GpuClaim, Job
from operations.metrics import exposition
from tests.service_lab import UNTIL_LET_GO, Lab, lab_of_rows
from tests.shared_rows import shared_rows

RUNS = 8
"""Of each GPU."""


@shared_rows
def node() -> Node:
    lab_of_rows().node("n1", gpus=4)
    Node.objects.update(emulated=False)
    return Node.objects.get()


def ran(lab: Lab, gpus: Sequence[Gpu], rate: float, **columns: Any) -> Attempt:
    """An attempt of a job of its own that made so many steps a second for 100 s on these GPUs."""
    end = lab.now
    reports = {"first_step": 0, "step": round(100 * rate), "reports": 9}
    times = {"started_at": end - timedelta(seconds=110), "first_step_at": end - timedelta(seconds=100)}
    ended = {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.SUCCEEDED, "ended_at": end, "step_at": end}
    where = {"nodes": [gpus[0].node.name], "gpu_count": len(gpus)}
    job = lab.submit(workload="resnet")
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=end)
    attempt = lab.attempt(job, **(reports | times | ended | where | columns))
    claims = [GpuClaim(gpu=gpu, attempt=attempt, held_from=end, released_at=end) for gpu in gpus]
    GpuClaim.objects.bulk_create(claims)
    return attempt


@shared_rows
def slow(node: Node) -> Gpu:
    """A GPU on which jobs made 8 steps a second, where they make 10 on the three others."""
    lab = lab_of_rows()
    gpus = list(Gpu.objects.order_by("index"))
    for number in range(RUNS):
        for gpu in gpus:
            ran(lab, [gpu], (8 if gpu.index == 3 else 10) * (1 + 0.002 * (number % 3)))
    note_gpu_speeds(timezone.now())
    return Gpu.objects.select_related("node").get(index=3)


def slower() -> dict[int, float]:
    return dict(Gpu.objects.filter(slower_by__gt=0).values_list("index", "slower_by"))


def test_a_gpu_whose_jobs_changed_their_batch_is_not_taken_for_a_slow_one(lab: Lab, node: Node) -> None:
    """Larger batches make fewer steps a second on any GPU."""
    for _ in range(RUNS):
        for gpu in Gpu.objects.order_by("index"):
            changed = gpu.index == 3
            ran(lab, [gpu], 8 if changed else 10, batch_changes=int(changed))
    note_gpu_speeds(timezone.now())
    assert slower() == {}


def test_a_gpu_on_which_jobs_are_slower_is_named_with_the_jobs_that_tell_it(slow: Gpu) -> None:
    assert slower() == {3: pytest.approx(0.15, abs=0.03)}
    assert slow.slower_by_jobs == RUNS
    assert slow.slowness == f"{slow.slower_by:.0%}".replace("%", " %") + " slower than its kind, by 8 jobs"


def test_the_history_of_its_node_tells_it_once(slow: Gpu) -> None:
    note_gpu_speeds(timezone.now())
    assert [event.message for event in NodeEvent.objects.filter(kind="speed")] == [f"GPU 3 is {slow.slowness}"]


@shared_rows
def slow_node(node: Node) -> Node:
    """One on which jobs that take all of its GPUs made 8 steps a second, where they make 10 on two others."""
    lab = lab_of_rows()
    lab.node("n2", gpus=4)
    lab.node("n3", gpus=4)
    Node.objects.update(emulated=False)
    for number in range(RUNS):
        for name, rate in (("n1", 8), ("n2", 10), ("n3", 10)):
            ran(lab, list(Gpu.objects.filter(node__name=name)), rate * (1 + 0.002 * (number % 3)))
    note_gpu_speeds(timezone.now())
    return node


@pytest.mark.usefixtures("plain_static")
def test_a_node_whose_gpus_are_not_told_apart_is_named_once(lab: Lab, slow_node: Node, client: Client) -> None:
    gpu = Gpu.objects.filter(node=slow_node).first()
    assert gpu is not None
    assert gpu.slower_together == 4
    assert [event.message for event in NodeEvent.objects.filter(kind="speed")] == [f"The node is {gpu.slowness}"]
    client.force_login(lab.user())
    page = client.get(reverse("node", args=["n1"])).content.decode()
    assert f"n1 is {gpu.slowness}" in page
    assert page.count(gpu.slowness) == 2  # above, and in its history: not with each GPU


def test_a_slow_gpu_is_named_when_other_jobs_tell_it_apart(lab: Lab, slow_node: Node) -> None:
    gpus = list(Gpu.objects.filter(node=slow_node).order_by("index"))
    others = list(Gpu.objects.filter(node__name="n2"))
    for _ in range(2 * RUNS):
        for gpu in (*gpus, *others):
            ran(lab, [gpu], 4 if gpu.index == 2 and gpu.node_id == slow_node.pk else 5)
    note_gpu_speeds(timezone.now())
    assert list(Gpu.objects.filter(slower_by__gt=0).values_list("node__name", "index", "slower_together")) == [
        ("n1", 2, 1)
    ]
    assert "GPU 2 is" in NodeEvent.objects.filter(kind="speed", message__contains="slower").order_by("-pk")[0].message


def test_a_gpu_is_no_longer_slow_when_newer_jobs_are_as_fast_on_it(lab: Lab, slow: Gpu) -> None:
    for _ in range(3 * RUNS):
        ran(lab, [slow], 10)
    note_gpu_speeds(timezone.now())
    assert slower() == {}
    assert NodeEvent.objects.filter(kind="speed").first().message == "GPU 3 is as fast as its kind again"


def test_runs_on_the_gpu_that_was_in_the_slot_before_tell_nothing_of_the_new_one(slow: Gpu) -> None:
    add_node("n1", slow.node.gpu_type, gpus=4, cpus=64, memory_mib=2**19, uuids=["", "", "", "GPU-new"])
    note_gpu_speeds(timezone.now())
    assert slower() == {}


def test_an_emulated_gpu_is_never_slow(slow: Gpu) -> None:
    Gpu.objects.update(slower_by=0)
    Node.objects.update(emulated=True)
    note_gpu_speeds(timezone.now())
    assert slower() == {}


def test_where_the_site_gives_out_gpus_its_word_counts_and_not_the_claims(lab: Lab, node: Node) -> None:
    Engine.objects.create(name="hpc", kind=Engine.Kind.SLURM)
    gpus = list(Gpu.objects.order_by("index"))
    for _ in range(RUNS):
        for index in range(4):
            ran(lab, gpus[:1], 8 if index == 2 else 10, engine="hpc", devices={"n1": str(index)})
    note_gpu_speeds(timezone.now())
    assert set(slower()) == {2}


def test_devices_as_slurm_writes_them() -> None:
    assert list(device_slots({"n1": "0-1,3"})) == [("n1", 0), ("n1", 1), ("n1", 3)]
    assert list(device_slots({"n1": ""})) == []


def test_speeds_are_estimated_every_ten_minutes(lab: Lab) -> None:
    noon = lab.now.replace(hour=12, minute=9, second=55, microsecond=0)
    assert [is_due(noon, noon + timedelta(seconds=s)) for s in (4, 10)] == [False, True]


# -- told ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_the_page_of_the_node_rest_and_metrics_tell_it(lab: Lab, slow: Gpu, client: Client) -> None:
    client.force_login(lab.user())
    assert slow.slowness in client.get(reverse("node", args=["n1"])).content.decode()
    answer = client.get("/api/v1/nodes/n1/gpus").json()["gpus"]
    assert [gpu["slower_by"] for gpu in answer] == [0, 0, 0, slow.slower_by]
    assert client.get("/api/v1/nodes/n1").json()["slow_gpus"] == 1
    assert f'motley_gpu_slower_by_ratio{{gpu="3",node="n1"}} {slow.slower_by}' in exposition().decode()


# -- avoided ---------------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_on_the_other_gpus(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name, gpus=2)
    Gpu.objects.filter(node__name="n1", index=1).update(slower_by=0.2, slower_by_jobs=9)
    job = lab.submit(UNTIL_LET_GO, gpus=2)
    lab.running(job)
    assert lab.gpus_held(job) == {"n2/0", "n2/1"}
