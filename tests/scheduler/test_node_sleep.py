"""Nodes that sleep and wake by the site's commands: emulated nodes, small scripts, real jobs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from cluster_app.feasibility import NodeShape, Request
from cluster_app.models import GpuType, Node, NodeEvent, NodePower
from cluster_app.services import put_to_sleep, resume
from scheduler_app.energy.advice import advise_when_due
from scheduler_app.energy.node_use import start_of, step_of
from scheduler_app.energy.power import COMMANDS
from scheduler_app.energy.report import energy_by_type
from scheduler_app.energy.wake import NodePools, nodes_to_wake
from scheduler_app.models import GpuClaim, NodeUse
from tests.service_lab import UNTIL_LET_GO, Lab

State = Node.State
SCRIPT = """#!/bin/sh
echo "$0 $1" >>"$(dirname "$0")/told"
[ ! -e "$(dirname "$0")/broken" ] || { echo "no answer from $1"; exit 3; }
"""


class Site:
    """The site's two commands, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sleep", "wake"):
            (folder / name).write_text(SCRIPT)
            (folder / name).chmod(0o755)

    @property
    def told(self) -> list[str]:
        """`sleep n1` and the like, in order."""
        path = self.folder / "told"
        return [Path(line).name for line in path.read_text().splitlines()] if path.exists() else []

    def breaks(self) -> None:
        (self.folder / "broken").touch()

    def is_mended(self) -> None:
        (self.folder / "broken").unlink()


@pytest.fixture
def site(tmp_path: Path, settings: Settings) -> Iterator[Site]:
    folder = tmp_path / "power"
    folder.mkdir()
    settings.MOTLEY_NODE_SLEEP = f"{folder}/sleep {{node}}"
    settings.MOTLEY_NODE_WAKE = f"{folder}/wake {{node}}"
    yield Site(folder)
    while COMMANDS.nodes:
        list(COMMANDS.ended())


@pytest.fixture
def nodes(lab: Lab) -> GpuType:
    """Six of two GPUs."""
    for number in range(6):
        lab.node(f"n{number}")
    lab.tick()
    return GpuType.objects.get()


def demand_fell(lab: Lab, kind: GpuType) -> None:
    """As rounds would have written it: five nodes were in use until ten minutes ago."""
    last = step_of(lab.now) - 1
    NodeUse.objects.filter(gpu_type=kind).delete()
    NodeUse.objects.bulk_create(
        NodeUse(gpu_type=kind, at=start_of(step), used=5 if step < last else 0, nodes=6)
        for step in range(last - 6, last + 1)
    )


def asleep(lab: Lab) -> set[str]:
    return set(Node.objects.filter(state=State.SLEEPING).values_list("name", flat=True))


def let_sleep(lab: Lab, *names: str) -> None:
    for name in names:
        assert put_to_sleep(Node.objects.get(name=name), reason="test", now=lab.now)
    lab.until(lambda: NodePower.objects.exclude(done_at=None).count() == len(names))


def test_nodes_sleep_at_low_load_and_wake_for_a_burst(lab: Lab, site: Site, nodes: GpuType) -> None:
    demand_fell(lab, nodes)
    advise_when_due(lab.now)
    assert asleep(lab) == {"n0", "n1", "n2", "n3", "n4"}  # none in use, and one in reserve
    lab.until(lambda: len(site.told) == 5)
    jobs = [lab.submit(UNTIL_LET_GO, gpus=2) for _ in range(4)]
    submitted = lab.now
    lab.running(*jobs)
    assert lab.now - submitted < timedelta(seconds=nodes.boot_s)
    assert sum(told.startswith("wake") for told in site.told) == 4  # three are needed, and one in reserve
    assert len(asleep(lab)) == 1
    kinds = [
        event.kind for event in NodeEvent.objects.filter(node__state=State.READY, kind__in=("slept", "woken", "awake"))
    ]
    assert sorted(kinds) == sorted(["slept", "woken", "awake"] * 4)
    lab.let_go(*jobs)


def test_without_both_commands_it_is_advice(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    settings.MOTLEY_NODE_WAKE = ""
    demand_fell(lab, nodes)
    advise_when_due(lab.now)
    assert not asleep(lab)
    assert len(energy_by_type(lab.now)[0].could_sleep) == 5


def test_no_job_is_placed_on_a_node_that_sleeps(lab: Lab, site: Site, nodes: GpuType) -> None:
    let_sleep(lab, "n0", "n1", "n2", "n3", "n4")
    job = lab.submit(UNTIL_LET_GO, gpus=2)
    lab.running(job)
    assert {gpu.split("/")[0] for gpu in lab.gpus_held(job)} == {"n5"}
    assert len(asleep(lab)) == 5
    lab.let_go(job)


def test_a_node_with_a_claim_does_not_fall_asleep(lab: Lab, site: Site, nodes: GpuType) -> None:
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    held = Node.objects.get(gpu__claims__in=GpuClaim.objects.open())
    assert not put_to_sleep(held, reason="test", now=lab.now)
    held.refresh_from_db()
    assert held.state == State.READY
    lab.let_go(job)


def test_the_silence_of_a_node_that_sleeps_does_not_count(lab: Lab, site: Site, nodes: GpuType) -> None:
    let_sleep(lab, "n0")
    silent = {"emulated": False, "heard_at": lab.now}  # no engine reports it any more
    Node.objects.filter(name__in=("n0", "n1")).update(**silent)
    with lab.clock_stopped():
        for _ in range(8):  # a longer pause would be one of the scheduler, in which silence does not count
            lab.ahead += timedelta(seconds=5)
            lab.tick()
    assert Node.objects.get(name="n1").health == Node.Health.SUSPECT
    assert Node.objects.get(name="n0").health == Node.Health.HEALTHY


def test_a_person_wakes_a_node_by_resuming_it(lab: Lab, site: Site, nodes: GpuType) -> None:
    let_sleep(lab, "n0")
    node = Node.objects.get(name="n0")
    resume(node, actor=lab.user("root", "admins", staff=True))
    node.refresh_from_db()
    assert node.state == State.WAKING
    lab.until(lambda: Node.objects.get(name="n0").state == State.READY)
    assert site.told == ["sleep n0", "wake n0"]
    assert not NodePower.objects.exists()


def test_a_command_that_fails_is_shown_and_repeated_later(lab: Lab, site: Site, nodes: GpuType) -> None:
    site.breaks()
    assert put_to_sleep(Node.objects.get(name="n0"), reason="test", now=lab.now)
    lab.until(lambda: NodePower.objects.exclude(fault="").exists())
    [shown] = energy_by_type(lab.now)[0].asleep
    assert shown.fault == "exit code 3: no answer from n0"
    assert NodePower.objects.get().retry_at > lab.now
    site.is_mended()
    lab.ahead += timedelta(seconds=11)
    lab.until(lambda: NodePower.objects.exclude(done_at=None).exists())
    assert site.told == ["sleep n0", "sleep n0"]


def test_a_command_that_does_not_exist_is_a_fault(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    settings.MOTLEY_NODE_SLEEP, settings.MOTLEY_NODE_WAKE = "/no/such/command {node}", "wake '{node}"
    put_to_sleep(Node.objects.get(name="n0"), reason="test", now=lab.now)
    lab.until(lambda: "No such file" in NodePower.objects.get().fault)
    resume(Node.objects.get(name="n0"), actor=None)
    lab.until(lambda: "No closing quotation" in NodePower.objects.get().fault)


def test_a_command_is_ended_when_its_time_is_up(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    settings.MOTLEY_NODE_SLEEP = "sleep 1000"
    settings.MOTLEY_NODE_POWER_TIMEOUT = timedelta()
    put_to_sleep(Node.objects.get(name="n0"), reason="test", now=lab.now)
    lab.until(lambda: "its time was up" in NodePower.objects.get().fault)
    assert not COMMANDS.nodes


def test_a_node_that_does_not_report_in_time_needs_a_person(lab: Lab, site: Site, nodes: GpuType) -> None:
    let_sleep(lab, "n0")
    node = Node.objects.get(name="n0")
    site.breaks()
    resume(node, actor=None)
    lab.until(lambda: NodePower.objects.exclude(fault="").exists())
    lab.ahead += timedelta(seconds=3 * nodes.boot_s + 1)
    lab.tick()
    node.refresh_from_db()
    assert node.state == State.CORDONED
    assert node.reason.startswith("it did not report within 900 s after it was woken; the command failed: exit code 3")


def test_the_fewest_nodes_are_woken_and_a_gang_may_use_awake_ones() -> None:
    def shapes(*names: str, gpus: int = 4, kind: str = "a100") -> dict[str, NodeShape]:
        return {name: NodeShape(kind, gpus, 40_000, 64, 512_000) for name in names}

    def woken(*waiting: Request, coming: int = 0, free: int = 0) -> list[str]:
        pools = NodePools(
            coming=shapes("c0", gpus=coming), asleep=shapes("a0", "a1", "a2"), free=shapes("f0", gpus=free)
        )
        return nodes_to_wake(waiting, pools, {})

    assert woken(*[Request(1)] * 4) == ["a0"]
    assert woken(*[Request(1)] * 5) == ["a0", "a1"]
    assert woken(Request(8), free=4) == ["a0"]
    assert woken(Request(4), coming=4) == []
    assert woken(Request(4, gpu_types=("v100",))) == []
    assert woken(Request(64)) == []
