"""Nodes that their site powers down and up: what the engine reports, and what becomes of the nodes."""

from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from accounting_app.energy.node_power import driven, is_driven, put_surplus_to_sleep
from accounting_app.models import SleepAdvice
from cluster_app.engine_reports import store_conditions
from cluster_app.models import Engine, GpuType, Node, NodeEvent, NodePower
from cluster_app.node_health import update_node_health
from cluster_app.services import cordon, put_to_sleep, resume
from connections_app import engine_registry
from engines.local.engine import LocalEngine
from engines.protocol import EngineError, NodeReport, NodeState, PowerCommand
from jobs_app.models import Job
from scheduler_app.round.power import sleep_as_reported, was_switched_on
from tests.service_lab import UNTIL_LET_GO, Lab

State, Health = Node.State, Node.Health
HPC = "hpc"


def said(lab: Lab, state: NodeState, *names: str) -> None:
    """The engine `hpc` reports the nodes in this state, as a turn of the scheduler takes it in."""
    reason = "" if state is NodeState.OK else f"Slurm says {state}"
    conditions = {HPC: {name: {"state": str(state), "reason": reason} for name in names}}
    long_ago = lab.now - timedelta(hours=1)
    Engine.objects.filter(name=HPC).update(fault="", since=long_ago)
    update_node_health(lab.now, listening_since=long_ago, conditions=conditions)
    store_conditions(conditions)
    sleep_as_reported(conditions, lab.now)


@pytest.fixture
def nodes(lab: Lab) -> None:
    """Two of the engine `hpc`, which saves power, and one here."""
    options = {"root": str(lab.root), "power_saving": True}
    Engine.objects.create(name=HPC, kind=Engine.Kind.SLURM, options=options, since=lab.now - timedelta(hours=1))
    for name in ("n1", "n2", "n3"):
        lab.node(name)
    Node.objects.filter(name__in=("n1", "n2")).update(engine=HPC, emulated=False, heard_at=lab.now)


def state_of(name: str) -> str:
    return Node.objects.get(name=name).state


@pytest.mark.parametrize("state", [NodeState.SLEEPING, NodeState.WAKING])
def test_a_node_that_its_site_has_switched_off_sleeps_and_is_not_lost(lab: Lab, nodes: None, state: NodeState) -> None:
    with lab.clock_stopped():
        said(lab, state, "n1")
        lab.ahead += timedelta(hours=1)
        said(lab, state, "n1")
    node = Node.objects.get(name="n1")
    assert (node.state, node.health, node.reason) == (State.SLEEPING, Health.HEALTHY, f"Slurm says {state}")
    assert NodeEvent.objects.filter(node=node, kind=NodeEvent.Kind.SLEPT).count() == 1


def test_a_cordoned_node_that_is_switched_off_stays_cordoned_and_is_not_lost(lab: Lab, nodes: None) -> None:
    cordon(Node.objects.get(name="n1"), reason="new fan", actor=None)
    with lab.clock_stopped():
        lab.ahead += timedelta(hours=1)
        said(lab, NodeState.SLEEPING, "n1")
    node = Node.objects.get(name="n1")
    assert (node.state, node.health) == (State.CORDONED, Health.HEALTHY)


def test_a_node_with_a_job_that_is_switched_off_is_lost(lab: Lab, nodes: None) -> None:
    job = lab.submit(UNTIL_LET_GO)
    lab.until_state(job, Job.State.RUNNING)
    Node.objects.filter(name="n3").update(engine=HPC, emulated=False)
    with lab.clock_stopped():
        lab.ahead += timedelta(hours=1)
        said(lab, NodeState.SLEEPING, "n3")
        node = Node.objects.get(name="n3")
        assert (node.state, node.health) == (State.READY, Health.LOST)
    Node.objects.filter(name="n3").update(engine="local", emulated=True)
    lab.let_go(job)


@pytest.mark.parametrize(
    ("reported", "switched_on"),
    [
        (NodeState.OK, True),
        (NodeState.WAKING, True),
        (NodeState.CORDONED, True),
        (NodeState.SLEEPING, False),
        (NodeState.SILENT, False),
    ],
)
def test_a_node_that_was_off_and_is_on_was_switched_on_by_its_site(
    lab: Lab, nodes: None, reported: NodeState, *, switched_on: bool
) -> None:
    assert put_to_sleep(Node.objects.get(name="n1"), reason="test", now=lab.now)
    row = NodePower.objects.select_related("node").get()
    row.sent_at = row.done_at = row.silent_at = lab.now
    assert was_switched_on(row, str(reported)) is switched_on
    row.done_at = None
    assert not was_switched_on(row, str(reported))  # it is being switched off
    row.done_at, row.silent_at = lab.now, None
    assert not was_switched_on(row, str(reported))  # it goes on for a while


def test_only_nodes_of_the_engine_that_saves_power_have_a_driver_and_are_put_to_sleep(lab: Lab, nodes: None) -> None:
    assert set(driven(Node.objects.all()).values_list("name", flat=True)) == {"n1", "n2"}
    assert {node.name: is_driven(node) for node in Node.objects.all()} == {"n1": True, "n2": True, "n3": False}
    advice = SleepAdvice(gpu_type=GpuType.objects.get(), awake=0, at=lab.now, frozen_until=lab.now, used=0)
    put_surplus_to_sleep([advice], lab.now)
    assert {node.name: node.state for node in Node.objects.all()} == {
        "n1": State.SLEEPING,
        "n2": State.SLEEPING,
        "n3": State.READY,
    }


class PoweringEngine(LocalEngine):
    """An engine with commands of its own for n1; it knows no other node."""

    def nodes(self) -> list[NodeReport]:
        return [NodeReport("n1"), NodeReport("n2")]

    def power_command(self, node: str, *, wake: bool) -> PowerCommand:
        if node != "n1":
            raise EngineError(f"Slurm knows no node {node}.")
        verb = "wake" if wake else "sleep"
        return PowerCommand(["sh", "-c", f"echo {verb} $NODE >>told"], self._root.path, {"NODE": node})


@pytest.fixture
def powering(lab: Lab, nodes: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the engine's commands write; the site's commands, which fail, are for other engines."""
    settings.MOTLEY_NODE_SLEEP = settings.MOTLEY_NODE_WAKE = "false"
    monkeypatch.setitem(engine_registry.FACTORIES, Engine.Kind.SLURM.value, lambda _: PoweringEngine(lab.root))
    return lab.root


def test_nodes_of_an_engine_that_saves_power_are_put_to_sleep_and_woken_by_its_commands(
    lab: Lab, powering: Path
) -> None:
    put_to_sleep(Node.objects.get(name="n1"), reason="test", now=lab.now)
    lab.until(lambda: NodePower.objects.exclude(done_at=None).exists())
    resume(Node.objects.get(name="n1"), actor=None)
    lab.until(lambda: NodePower.objects.exclude(done_at=None).exists())
    assert (powering / "told").read_text().splitlines() == ["sleep n1", "wake n1"]


def test_a_command_that_the_engine_refuses_is_a_fault_that_staff_see(lab: Lab, powering: Path) -> None:
    put_to_sleep(Node.objects.get(name="n2"), reason="test", now=lab.now)
    lab.until(lambda: "Slurm knows no node n2." in NodePower.objects.get().fault)
