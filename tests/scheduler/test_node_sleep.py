"""Nodes that sleep and wake by the site's commands: emulated nodes, small scripts, real jobs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from pytest_django import Settings

from accounting_app.energy.advice import advise_when_due
from accounting_app.energy.node_power import read_idle_nodes
from accounting_app.energy.node_use import start_of, step_of
from accounting_app.energy.report import energy_by_type
from accounting_app.energy.wake import NodePools, nodes_to_wake, wake_for_waiting_jobs
from accounting_app.models import NodeUse, SleepAdvice
from allocation.time_budget import TimeBudget
from cluster_app.feasibility import NodeShape, Request
from cluster_app.models import Engine, GpuType, Node, NodeEvent, NodeInterval, NodePower
from cluster_app.node_history import begin_interval, note_health
from cluster_app.services import cordon, keep_awake, put_to_sleep, resume, wake
from cluster_app.storage import Volunteers
from connections_app.probe import advance_probes, ask_for_probe
from engines.protocol import NodeState
from insight_app.explain.decisions import explain_job
from jobs_app.models import GpuClaim, Job, Reason, Team
from scheduler_app.errors import LeaseLost
from scheduler_app.models import Round
from scheduler_app.round.lease import Loop, acquire_lease, release_lease
from scheduler_app.round.power import COMMANDS, drive_power, due_commands, is_awake, is_overdue
from tests.service_lab import UNTIL_LET_GO, Lab

State = Node.State
BOOT_S = 4
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
    """Six of two GPUs, which boot within seconds."""
    for number in range(6):
        lab.node(f"n{number}")
    GpuType.objects.update(boot_s=BOOT_S)
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
    lab.running(*jobs)
    lab.until(lambda: sum(told.startswith("wake") for told in site.told) == 4)  # three are needed, and one in reserve
    lab.until(lambda: not Node.objects.filter(state=State.WAKING).exists())  # until then the jobs may take turns
    assert len(asleep(lab)) == 1
    kinds = [
        event.kind for event in NodeEvent.objects.filter(node__state=State.READY, kind__in=("slept", "woken", "awake"))
    ]
    assert sorted(kinds) == sorted(["slept", "woken", "awake"] * 4)
    # Delayed by the boot alone: the next round starts the job, or the one after it, if another job had its turn there.
    for first in (lab.attempts(job)[0] for job in jobs):
        for boot in NodeEvent.objects.filter(node__name=first.nodes[0], kind="awake"):
            soon = Round.objects.filter(started_at__gt=boot.at).order_by("number")[:2]
            assert first.round_number <= max(record.number for record in soon)
    lab.let_go(*jobs)


def test_a_job_that_waits_is_told_which_nodes_are_woken_for_it(
    lab: Lab, site: Site, nodes: GpuType, plain_static: None
) -> None:
    let_sleep(lab, "n0", "n1", "n2", "n3", "n4")
    running, waits = (lab.submit(UNTIL_LET_GO, gpus=2) for _ in range(2))
    lab.until(lambda: NodePower.objects.filter(node__state=State.WAKING).exists())
    waits.refresh_from_db()
    told, *_ = explain_job(waits, lab.now)["waking"]
    power = NodePower.objects.get(node__name=told.node, node__state=State.WAKING)
    assert told.expected_at == power.since + timedelta(seconds=BOOT_S)
    client = Client()
    client.force_login(waits.owner)
    said = client.get(f"/jobs/{waits.pk}", {"tab": "why"}).content.decode()
    assert f"being woken; {told.node} is expected to take jobs" in " ".join(said.split())
    lab.running(running, waits)
    assert explain_job(waits, lab.now)["waking"] == []
    lab.let_go(running, waits)


def test_without_both_commands_it_is_advice(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    settings.MOTLEY_NODE_WAKE = ""
    demand_fell(lab, nodes)
    advise_when_due(lab.now)
    assert not asleep(lab)
    assert len(energy_by_type(lab.now, for_staff=True)[0].could_sleep) == 5


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
    assert NodePower.objects.get().silent_at is not None  # it is off: what is heard of it from now on is its boot


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
    [shown] = energy_by_type(lab.now, for_staff=True)[0].asleep
    assert shown.fault == "exit code 3: no answer from n0"
    [told_to_others] = energy_by_type(lab.now, for_staff=False)[0].asleep
    assert told_to_others.fault == "the site's command failed"
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


def test_a_null_character_in_the_output_is_left_out(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    settings.MOTLEY_NODE_SLEEP = r"sh -c 'printf no\\0answer; exit 1'"  # PostgreSQL stores none
    untold(lab)
    lab.until(lambda: NodePower.objects.exclude(fault="").exists())
    assert NodePower.objects.get().fault == "exit code 1: noanswer"


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
    lab.until(lambda: Node.objects.get(name="n0").state == State.CORDONED)
    node.refresh_from_db()
    assert node.reason == "it did not report within 12 s after it was woken; the site's command failed"


def untold(lab: Lab, name: str = "n0") -> Node:
    """A node that is to sleep, and has not been told so."""
    node = Node.objects.get(name=name)
    assert put_to_sleep(node, reason="test", now=lab.now)
    return node


def wakes(lab: Lab, node: Node) -> NodePower:
    resume(node, actor=None)
    return NodePower.objects.select_related("node__gpu_type", "node__engine").get(node=node)


@pytest.mark.parametrize("use", ["foreign_gpus", "foreign_cpus", "foreign_memory_mib"])
def test_a_node_that_others_use_does_not_fall_asleep(lab: Lab, site: Site, nodes: GpuType, use: str) -> None:
    Node.objects.filter(name="n0").update(**{use: 1})
    assert not put_to_sleep(Node.objects.get(name="n0"), reason="test", now=lab.now)
    assert "n0" not in {node.name for idle in read_idle_nodes(lab.now).values() for node in idle}


def test_a_node_that_others_begin_to_use_is_not_told_to_sleep(lab: Lab, site: Site, nodes: GpuType) -> None:
    node, fence = untold(lab), lab.fence
    Node.objects.filter(pk=node.pk).update(foreign_cpus=8)  # as its engine reports it next
    drive_power(fence, lab.now)
    node.refresh_from_db()
    assert (node.state, node.reason) == (State.READY, "")
    assert not NodePower.objects.exists()
    assert not site.told


def test_a_node_is_told_to_sleep_only_after_its_engine_was_heard_again(lab: Lab, site: Site, nodes: GpuType) -> None:
    with lab.clock_stopped():
        untold(lab)
        drive_power(lab.fence, lab.now)
        assert not COMMANDS.nodes
        lab.ahead += timedelta(seconds=1)
        lab.tick()
        assert NodePower.objects.get().sent_at == lab.now


def test_who_lost_the_lease_starts_no_command(lab: Lab, site: Site, nodes: GpuType) -> None:
    fence = lab.fence
    untold(lab)
    Engine.objects.update(heard_at=lab.now + timedelta(seconds=1))
    release_lease("lab", lab.now)
    assert acquire_lease("other", lab.now + timedelta(seconds=1), Loop.ENGINES)
    with pytest.raises(LeaseLost):
        drive_power(fence, lab.now)
    assert not COMMANDS.nodes


def test_a_wake_waits_for_a_sleep_command_whose_end_nobody_heard(lab: Lab, site: Site, nodes: GpuType) -> None:
    """The process that started it is gone; the node might be switched off after it was woken."""
    node = untold(lab)
    sent_at = lab.now
    NodePower.objects.update(sent_at=sent_at)
    row = wakes(lab, node)
    over_at = sent_at + settings.MOTLEY_NODE_POWER_TIMEOUT + timedelta(seconds=10)
    assert due_commands([row], set(), over_at - timedelta(seconds=1)) == []
    assert due_commands([row], set(), over_at) == [row]
    resume(node, actor=None)
    assert NodePower.objects.get().retry_at == over_at


def test_a_wake_follows_the_end_of_the_sleep_command(lab: Lab, site: Site, nodes: GpuType, settings: Settings) -> None:
    """Its end is not taken for that of the wake."""
    settings.MOTLEY_NODE_SLEEP = f"sh -c 'while [ ! -e {site.folder}/off ]; do sleep 0.05; done'"
    node = untold(lab)
    lab.until(lambda: COMMANDS.nodes)
    resume(node, actor=None)
    lab.tick()
    assert not site.told
    (site.folder / "off").touch()
    lab.until(lambda: NodePower.objects.exclude(done_at=None).exists())
    assert site.told == ["wake n0"]


def test_a_round_does_not_wake_a_node_that_was_cordoned(lab: Lab, site: Site, nodes: GpuType) -> None:
    node = untold(lab)
    cordon(node, reason="new fan", actor=None)
    assert not wake(node, reason="jobs wait", now=lab.now)
    node.refresh_from_db()
    assert (node.state, node.reason) == (State.CORDONED, "new fan")


@pytest.mark.parametrize(("now", "woken"), [(Volunteers.ANY, {"desk"}), (Volunteers.NONE, set())])
def test_a_machine_that_joined_is_woken_only_for_jobs_whose_team_allows_it_now(
    lab: Lab, site: Site, now: Volunteers, woken: set[str]
) -> None:
    lab.node("desk")
    joined = Engine.objects.create(name="desk", kind=Engine.Kind.AGENT)
    Node.objects.update(engine=joined, state=State.SLEEPING, reason="low load")
    lab.user()
    Team.objects.update(volunteers=Volunteers.ANY)
    lab.submit()
    Job.objects.update(reason=Reason.INSUFFICIENT_GPUS)
    Team.objects.update(volunteers=now)
    wake_for_waiting_jobs(lab.now)
    assert set(Node.objects.filter(state=State.WAKING).values_list("name", flat=True)) == woken


def test_patience_begins_with_the_end_of_the_command_and_while_the_engine_answers(
    lab: Lab, site: Site, nodes: GpuType
) -> None:
    row, boots = wakes(lab, untold(lab)), timedelta(seconds=3 * BOOT_S)
    woken_at, long_ago = row.since, row.since - timedelta(days=1)
    row.node.engine.since = long_ago
    late = woken_at + 2 * boots
    assert not is_overdue(row, late, long_ago)
    row.failed_at = woken_at + boots
    assert not is_overdue(row, late, long_ago)
    assert is_overdue(row, late + timedelta(seconds=1), long_ago)
    assert not is_overdue(row, late + timedelta(seconds=1), late)  # the scheduler was off
    row.node.engine.since = late
    assert not is_overdue(row, late + timedelta(seconds=1), long_ago)  # its engine did not answer
    row.node.engine.fault = "no route to host"
    assert not is_overdue(row, late + timedelta(days=1), long_ago)


def test_what_an_engine_reports_of_a_node_that_was_just_switched_off_is_not_taken_for_its_boot(
    lab: Lab, site: Site, nodes: GpuType
) -> None:
    row = wakes(lab, untold(lab))
    row.done_at = row.since
    row.node.heard_at = row.since + timedelta(seconds=BOOT_S - 1)
    assert not is_awake(row)
    row.silent_at = row.since - timedelta(minutes=1)
    assert is_awake(row)
    row.silent_at, row.node.heard_at = None, row.since + timedelta(seconds=BOOT_S)
    assert is_awake(row)


def test_sleep_is_neither_time_up_nor_a_loss(lab: Lab, site: Site, nodes: GpuType) -> None:
    node = Node.objects.get(name="n0")
    begin_interval(node, lab.now - timedelta(hours=1))
    untold(lab)
    note_health(node, Node.Health.LOST, lab.now)  # it was cordoned, say, and its silence counted
    [interval] = NodeInterval.objects.filter(node=node)
    assert interval.end == NodeInterval.End.SLEPT
    assert interval.ended_at is not None
    keep_awake(node, reason="test", now=lab.now)
    begun = NodeInterval.objects.get(node=node, ended_at=None)
    assert begun.up
    assert begun.started_at >= interval.ended_at


def test_a_node_has_been_idle_since_it_was_awake_again(lab: Lab, site: Site, nodes: GpuType) -> None:
    node = untold(lab)
    keep_awake(node, reason="test", now=lab.now)
    [idle] = read_idle_nodes(lab.now).values()
    idle_s = {one.name: one.idle_s for one in idle}
    assert idle_s["n0"] < 3600 < idle_s["n1"]


def test_a_wake_by_hand_keeps_the_type_awake(lab: Lab, site: Site, nodes: GpuType) -> None:
    resume(untold(lab), actor=None)
    demand_fell(lab, nodes)
    SleepAdvice.objects.all().delete()
    advise_when_due(lab.now)
    assert not asleep(lab)


def test_the_administration_says_that_a_node_is_only_being_woken(
    lab: Lab, site: Site, nodes: GpuType, plain_static: None
) -> None:
    untold(lab)
    web = Client()
    web.force_login(lab.user("root", "admins", staff=True))
    chosen = Node.objects.filter(name__in=("n0", "n1")).values_list("pk", flat=True)
    asked = {"action": "resume_nodes", "_selected_action": list(chosen)}
    page = web.post("/admin/cluster_app/node/", asked, follow=True).content.decode()
    assert "In service: n1. Being woken: n0." in page


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
    assert woken(Request(64), Request(64), Request(4)) == ["a0"]
    assert woken(Request(12)) == ["a0", "a1", "a2"]


def test_when_its_time_is_up_first_fit_stops_with_what_it_has() -> None:
    pools = NodePools(coming={}, asleep={"a0": NodeShape("a100", 4, 40_000, 64, 512_000)}, free={})
    assert nodes_to_wake([Request(1)], pools, {}, TimeBudget.after(0)) == []


def test_an_engine_is_not_tested_on_a_node_that_sleeps(lab: Lab, site: Site, nodes: GpuType) -> None:
    Node.objects.exclude(name__in=("n0", "n1")).delete()
    untold(lab)
    probe = ask_for_probe(Engine.objects.get(name="local"), actor=None)
    advance_probes(lab.now)
    probe.refresh_from_db()
    assert probe.node == "n1"
    untold(lab, "n1")
    Engine.objects.update(inventory={"n0": {"state": NodeState.OK}})  # the engine has not noticed yet
    second = ask_for_probe(Engine.objects.get(name="local"), actor=None)
    advance_probes(lab.now)
    second.refresh_from_db()
    assert (second.node, second.launched_at) == ("", None)
