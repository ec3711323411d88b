"""What an agent says counts for its own machine and since its launch; wrong words of one harm no other."""

import gzip
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Engine, Node
from connections_app.agents import engine as module
from connections_app.agents import silence, uploads
from connections_app.agents.engine import AgentEngine
from connections_app.agents.reports import OwnMachine, within
from connections_app.agents.sync import hear
from connections_app.agents.uploads import (
    CHUNK_BYTES,
    ArchiveLimits,
    CutShort,
    LargerThanAllowed,
    checkpoints_of,
    store_checkpoints,
)
from connections_app.models import Agent, AgentAttempt
from engines.agent.codec import encode
from engines.agent.messages import VERSION, AttemptNews, Orders, Sync
from engines.protocol import (
    AttemptReport,
    GpuReading,
    Launch,
    NodeFault,
    NodeLaunch,
    NodeReport,
    NodeState,
    Phase,
    Progress,
    StopReason,
    WatchedGpu,
)
from jobs_app.models import Job
from scheduler_app.round.reconcile import observe
from tests.played_agent import DESK
from tests.service_lab import Lab

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
DELIVERED = NOW - timedelta(minutes=10)
OWN = OwnMachine("desk", lambda: {"GPU-desk"})


@pytest.fixture
def agent(lab: Lab, settings: Settings, tmp_path: Path) -> Agent:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    engine = Engine.objects.create(name="desk", kind=Engine.Kind.AGENT)
    lab.node("desk", "k80")
    Node.objects.filter(name="desk").update(engine=engine)
    return Agent.objects.create(
        name="desk",
        join_digest="1",
        join_expires_at=lab.now,
        engine=engine,
        digest="2",
        node_report=encode(replace(DESK, name="desk")),
        told=1,
        heard_at=lab.now,
    )


def says(agent: Agent, report: NodeReport) -> None:
    Agent.objects.filter(pk=agent.pk).update(node_report=encode(report))


@pytest.mark.parametrize("cpus", [-1, 10**12])
def test_impossible_figures_of_one_machine_stop_no_other_engine(agent: Agent, lab: Lab, cpus: int) -> None:
    says(agent, replace(DESK, name="of-another", foreign_cpus=cpus, foreign_gpus=cpus, foreign_memory_mib=cpus))
    lab.node("n1")
    job = lab.submit("true", gpu_types=["a100"])
    lab.until_state(job, Job.State.SUCCEEDED)
    (report,) = AgentEngine("desk").nodes()
    assert (report.name, report.foreign_cpus) == ("desk", 0)


def test_an_engine_whose_figures_cannot_be_stored_leaves_those_of_others(
    agent: Agent, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine of the site with a fault of its own would."""
    lab.node("n1")
    bad = [NodeReport("desk", foreign_cpus=-1, state=NodeState.CORDONED, reason="broken")]
    monkeypatch.setattr(AgentEngine, "nodes", lambda _: bad)
    Node.objects.filter(name="n1").update(limits="of before")
    observe(lab.fence, lab.now)
    assert Node.objects.get(name="desk").engine_reason == ""
    assert Node.objects.get(name="n1").limits != "of before"


def test_a_machine_that_was_deleted_is_at_fault_by_itself(agent: Agent, lab: Lab) -> None:
    Engine.objects.create(name="deleted", kind=Engine.Kind.AGENT)
    observe(lab.fence, lab.now)
    faults = dict(Engine.objects.filter(kind=Engine.Kind.AGENT).values_list("name", "fault"))
    assert faults == {"desk": "", "deleted": "No machine has joined as deleted."}


def test_times_of_an_attempt_lie_between_its_launch_and_now() -> None:
    report = AttemptReport(
        1, Phase.ENDED, started_at=NOW - timedelta(days=9), ended_at=NOW + timedelta(days=9), ran_s=1e12
    )
    held = within(report, OWN, DELIVERED, NOW)
    assert (held.started_at, held.ended_at, held.ran_s) == (DELIVERED, NOW, 600.0)
    assert within(replace(report, ran_s=-1e12), OWN, DELIVERED, NOW).ran_s == 0
    parts = within(replace(report, code_s=1e12, setup_s=-1.0), OWN, DELIVERED, NOW)
    assert (parts.code_s, parts.setup_s) == (600.0, 0)
    assert within(replace(report, ran_s=None, started_at=None), OWN, DELIVERED, NOW).started_at is None


def test_an_agent_reports_no_storage_and_no_gpu_of_another_machine() -> None:
    storage = {"n1": "data", "desk": "data"}
    report = AttemptReport(1, Phase.ENDED, missing_storage=storage, faulty_gpus={"GPU-n1": "bad", "GPU-desk": "bad"})
    held = within(report, OWN, DELIVERED, NOW)
    assert (held.missing_storage, held.faulty_gpus) == ({"desk": "data"}, {"GPU-desk": "bad"})


def test_a_silent_machine_is_silent_for_an_engine_that_is_made_anew_at_each_turn(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(silence, "monotonic", lambda: now_s)
    assert AgentEngine("desk").nodes()[0].state == NodeState.OK
    now_s += silence.SILENT_AFTER_S + 1
    assert AgentEngine("desk").nodes()[0].state == NodeState.SILENT
    Agent.objects.filter(pk=agent.pk).update(told=2)
    assert AgentEngine("desk").nodes()[0].state == NodeState.OK


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "last_news", {})
    monkeypatch.setattr(module, "last_readings", {})


@pytest.mark.usefixtures("new_process")
def test_a_message_of_long_ago_is_no_news_to_a_new_process(agent: Agent, lab: Lab) -> None:
    Agent.objects.filter(pk=agent.pk).update(heard_at=lab.now - timedelta(days=7))
    assert AgentEngine("desk").nodes()[0].state == NodeState.SILENT
    Agent.objects.filter(pk=agent.pk).update(told=2, heard_at=lab.now)
    assert AgentEngine("desk").nodes()[0].state == NodeState.OK


@pytest.mark.usefixtures("new_process")
def test_readings_of_long_ago_are_not_those_of_now_to_a_new_process(agent: Agent, lab: Lab) -> None:
    seat, reading = WatchedGpu(7, "desk", 0), GpuReading(0, utilization=50.0)
    old = {"gpu_readings": [encode(reading)], "gpus_read": 1, "heard_at": lab.now - timedelta(days=7)}
    Agent.objects.filter(pk=agent.pk).update(**old)
    assert AgentEngine("desk").read_gpus([seat]) == []
    Agent.objects.filter(pk=agent.pk).update(gpus_read=2, heard_at=lab.now)
    assert [one.gpu for one in AgentEngine("desk").read_gpus([seat])] == [7]


def launch_of(attempt: int) -> Launch:
    return Launch(attempt, job=str(uuid4()), command="true", tasks=[NodeLaunch("desk", {})])


def hears(agent: Agent, *news: AttemptNews) -> Orders:
    return hear(agent, Sync(VERSION, "machine", DESK, attempts=news), timezone.now())


def test_a_stop_that_comes_before_its_launch_holds(agent: Agent) -> None:
    engine = AgentEngine("desk")
    engine.stop(7, reason=StopReason.CANCEL, grace=timedelta())
    engine.launch(launch_of(7))
    assert hears(agent).launches == []
    assert [(one.phase, one.proven_gone) for one in engine.poll([7])] == [(Phase.UNKNOWN, True)]


def test_a_launch_that_is_out_already_is_not_refused_when_trust_goes(agent: Agent) -> None:
    """To be refused would mean that it did not start, and it may run."""
    engine = AgentEngine("desk")
    engine.launch(launch_of(7))
    Agent.objects.update(revoked_at=timezone.now())
    engine.launch(launch_of(7))
    with pytest.raises(NodeFault):
        engine.launch(launch_of(8))


def test_a_launch_that_was_lost_after_it_was_acknowledged_is_made_again(agent: Agent) -> None:
    """As where the agent's supervisor dies before it has noted the start."""
    engine = AgentEngine("desk")
    engine.launch(launch_of(7))
    assert [one.attempt for one in hears(agent).launches] == [7]
    hears(agent, AttemptNews(AttemptReport(7, Phase.LAUNCHING)))
    lost = AttemptNews(AttemptReport(7, Phase.UNKNOWN, proven_gone=True))
    hears(agent, lost)
    assert engine.poll([7])[0].phase == Phase.UNKNOWN
    engine.launch(launch_of(7))
    assert engine.poll([7])[0].phase == Phase.LAUNCHING
    assert [one.attempt for one in hears(agent, lost).launches] == [7]


def test_secrets_do_not_leave_once_trust_has_gone(agent: Agent) -> None:
    Agent.objects.update(trusted=True)
    engine, secret = AgentEngine("desk"), replace(launch_of(7), secrets={"KEY": "long enough"})
    engine.launch(secret)
    Agent.objects.update(trusted=False)
    assert hears(agent).launches == []
    assert engine.poll([7])[0].phase == Phase.UNKNOWN
    with pytest.raises(NodeFault):
        engine.launch(secret)


def test_a_launch_that_cannot_be_read_is_made_anew_and_delays_no_other(agent: Agent) -> None:
    engine = AgentEngine("desk")
    engine.launch(launch_of(7))
    engine.launch(launch_of(8))
    AgentAttempt.objects.filter(attempt=7).update(launch="sealed with a key that is gone")
    assert [one.attempt for one in hears(agent).launches] == [8]
    engine.launch(launch_of(7))
    assert [one.attempt for one in hears(agent).launches] == [7, 8]


def test_an_upload_goes_on_only_while_its_attempt_is_live(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "ASK_EVERY_BYTES", CHUNK_BYTES)
    body, answers = BytesIO(gzip.compress(bytes(2 * CHUNK_BYTES), 0)), iter([True, False, False])
    limits = ArchiveLimits(packed=8 * CHUNK_BYTES, unpacked=8 * CHUNK_BYTES)
    size, job = len(body.getvalue()), uuid4()
    assert not store_checkpoints(
        job, body, size=size, limits=limits, sender=agent.pk, still=lambda: nullcontext(next(answers))
    )
    assert body.tell() == CHUNK_BYTES
    assert not list(checkpoints_of(job).parent.iterdir())


def test_an_archive_that_was_cut_short_replaces_no_whole_one(agent: Agent) -> None:
    job, whole = uuid4(), gzip.compress(b"whole")

    def store(body: bytes, size: int) -> bool:
        limits = ArchiveLimits(packed=len(whole), unpacked=9)
        return store_checkpoints(
            job, BytesIO(body), size=size, limits=limits, sender=agent.pk, still=lambda: nullcontext(True)
        )

    assert store(whole, len(whole))
    with pytest.raises(CutShort):
        store(whole[:4], len(whole))
    with pytest.raises(LargerThanAllowed):
        store(whole, len(whole) + 1)
    assert checkpoints_of(job).read_bytes() == whole
    assert len(list(checkpoints_of(job).parent.iterdir())) == 1


def test_progress_and_exit_codes_that_no_column_takes_are_left_out() -> None:
    said = Progress(1, 0, DELIVERED, 5, NOW)
    report = AttemptReport(7, Phase.RUNNING, exit_code=2**40, progress=said, invalid_lines=2**40)
    held = within(report, OWN, DELIVERED, NOW)
    assert (held.exit_code, held.progress, held.invalid_lines) == (255, said, 2**31 - 1)
    for wrong in (replace(said, step=-1), replace(said, reports=2**40), replace(said, batch_size=-8)):
        assert within(replace(report, progress=wrong), OWN, DELIVERED, NOW).progress is None
    at_the_begin = datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert within(replace(report, progress=replace(said, at=at_the_begin)), OWN, DELIVERED, NOW).progress is None


@pytest.mark.parametrize(("restore_s", "later_s"), [(-1e300, 0), (1e9, 0), (1, 1e9)])
def test_a_restore_that_cannot_be_is_left_out(restore_s: float, later_s: float) -> None:
    said = Progress(1, 0, DELIVERED, 5, NOW, restore_s=0.0, restored_at=DELIVERED)
    wrong = replace(said, restore_s=restore_s, restored_at=DELIVERED + timedelta(seconds=later_s))
    held = within(AttemptReport(7, Phase.RUNNING, progress=wrong), OWN, DELIVERED, NOW).progress
    assert held == replace(said, restore_s=None, restored_at=None)
    assert within(AttemptReport(7, Phase.RUNNING, progress=said), OWN, DELIVERED, NOW).progress == said
