"""Nodes that are cordoned, drained, silent and lost; and what becomes of the jobs on them."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from cluster_app.engine_reports import record_heartbeats
from cluster_app.errors import ReasonMissing
from cluster_app.models import LOCAL_ENGINE, LOST_AFTER, SUSPECT_AFTER, Engine, Gpu, Node, NodeEvent
from cluster_app.node_health import health_at, update_node_health
from cluster_app.services import add_node, cordon, drain, resume, set_gpu_count
from connections_app import engine_registry as fleet
from connections_app.engine_registry import EngineSetup
from engines.local.engine import LocalEngine
from engines.protocol import AttemptReport, NodeReport, StopReason
from jobs_app.models import Attempt, Job, Reason
from tests.service_lab import UNTIL_LET_GO, Lab

State, Health = Job.State, Node.Health
A_TICK = timedelta(seconds=9)
"""Shorter than the lease: the scheduler listens all the while."""


# -- out of service by hand --------------------------------------------------------------------------------------


def test_a_cordoned_node_gets_nothing_new(lab: Lab) -> None:
    cordon(lab.node("n1"), reason="new driver", actor=None)
    job = lab.submit()
    lab.round()
    job.refresh_from_db()
    assert (job.state, job.reason) == (State.QUEUED, Reason.NO_HEALTHY_NODE)


def test_what_runs_on_a_cordoned_node_goes_on(lab: Lab) -> None:
    node = lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    cordon(node, reason="new driver", actor=None)
    lab.round()
    lab.let_go(job)
    lab.until_state(job, State.SUCCEEDED)
    assert job.attempt_count == 1


def test_a_job_on_a_drained_node_goes_on_elsewhere(lab: Lab) -> None:
    node = lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    lab.node("n2")
    drain(node, reason="new driver", actor=None)
    lab.until(lambda: job.attempts.filter(number=2, state=Attempt.State.RUNNING).exists())
    assert [attempt.nodes for attempt in lab.attempts(job)] == [["n1"], ["n2"]]


def test_a_node_in_service_that_is_resumed_was_not_out_of_service(lab: Lab) -> None:
    node = lab.node("n1", gpus=1)
    cordon(node, reason="fan", actor=None)
    for _ in range(2):
        resume(node, actor=None)
    assert node.events.filter(kind=NodeEvent.Kind.RESUMED).count() == 1


def test_a_draining_node_is_drained_when_its_last_job_has_gone_and_can_be_resumed(lab: Lab) -> None:
    node = lab.node("n1")
    job = lab.submit(UNTIL_LET_GO, preemptible=False)
    lab.running(job)
    drain(node, reason="new driver", actor=None)
    lab.until(lambda: Node.objects.get().state == Node.State.DRAINED)
    assert lab.gpus_held(job) == set()
    assert (Node.objects.get().reason, node.events.latest("pk").kind) == ("new driver", NodeEvent.Kind.EMPTIED)
    resume(Node.objects.get(), actor=None)
    lab.running(job)


def test_a_job_on_a_drained_node_is_told_the_reason(lab: Lab) -> None:
    node = lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    drain(node, reason="new driver", actor=None)
    lab.until_state(job, State.QUEUED)
    assert (job.attempts.get().stop_note, job.attempts.get().stop_reason) == ("n1: new driver", "drain")


def test_a_resumed_node_takes_jobs_again(lab: Lab) -> None:
    node = lab.node("n1")
    drain(node, reason="new driver", actor=None)
    job = lab.submit()
    lab.round()
    resume(node, actor=None)
    lab.until_state(job, State.SUCCEEDED)


@pytest.mark.parametrize("take_out", [cordon, drain])
def test_a_node_is_not_taken_out_without_a_reason(lab: Lab, take_out: type[object]) -> None:
    node = lab.node("n1")
    with pytest.raises(ReasonMissing):
        take_out(node, reason="  ", actor=None)  # type: ignore[call-arg]


def test_the_history_names_the_actor_and_the_reason(lab: Lab) -> None:
    node, ada = lab.node("n1"), lab.user("ada", staff=True)
    cordon(node, reason="new driver", actor=ada)
    event = node.events.first()
    assert event is not None
    assert (event.kind, event.message, event.actor) == ("cordoned", "new driver", ada)


# -- GPUs come and go --------------------------------------------------------------------------------------------


def test_a_gpu_taken_out_of_its_node_gets_no_jobs(lab: Lab) -> None:
    set_gpu_count(lab.node("n1", gpus=2), 1)
    lab.running(lab.submit(UNTIL_LET_GO, preemptible=False))
    job = lab.submit()
    lab.round()
    job.refresh_from_db()
    assert job.state == State.QUEUED


def test_a_gpu_that_comes_back_is_the_same_row(lab: Lab) -> None:
    node = lab.node("n1", gpus=2)
    before = set(Gpu.objects.values_list("pk", flat=True))
    for count in (1, 2):
        set_gpu_count(node, count)
    assert set(Gpu.objects.present().values_list("pk", flat=True)) == before


def test_a_node_added_again_is_brought_up_to_date(lab: Lab) -> None:
    kind = lab.node("n1", gpus=2).gpu_type
    add_node("n1", kind, gpus=4, cpus=8, memory_mib=1024, uuids=["GPU-a", "GPU-b"])
    assert list(Gpu.objects.order_by("index").values_list("uuid", flat=True)) == ["GPU-a", "GPU-b", "", ""]


def test_an_unhealthy_gpu_gets_no_jobs(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    Gpu.objects.update(healthy=False)
    job = lab.submit()
    lab.round()
    job.refresh_from_db()
    assert job.state == State.QUEUED


# -- silence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "health"),
    [
        (SUSPECT_AFTER, Health.HEALTHY),
        (SUSPECT_AFTER + A_TICK, Health.SUSPECT),
        (LOST_AFTER, Health.SUSPECT),
        (LOST_AFTER + A_TICK, Health.LOST),
    ],
)
def test_health_follows_from_silence(lab: Lab, silence: timedelta, health: Node.Health) -> None:
    node, now = lab.node("n1"), lab.now
    node.heard_at = now
    assert health_at(node, now + silence, listening_since=now, answering_since=now) == health


def test_silence_counts_only_while_the_scheduler_listened(lab: Lab) -> None:
    node, now = lab.node("n1"), lab.now
    node.heard_at = now - timedelta(days=1)
    assert health_at(node, now, listening_since=now - A_TICK, answering_since=now - A_TICK) == Health.HEALTHY


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.LOST])
def test_a_scheduler_or_engine_that_begins_anew_makes_no_silent_node_better(lab: Lab, health: Node.Health) -> None:
    node, now = lab.node("n1"), lab.now
    node.heard_at, node.health = now - timedelta(days=7), health
    ages = timedelta(), SUSPECT_AFTER, LOST_AFTER
    found = {
        health_at(node, now, listening_since=now - age, answering_since=since)
        for age in ages
        for since in (now, now - age, None)
    }
    assert found == {health}
    node.heard_at = now
    assert health_at(node, now, listening_since=now, answering_since=now) == Health.HEALTHY


def test_a_change_of_health_is_written_down_once(lab: Lab) -> None:
    node, now = lab.node("n1"), lab.now
    record_heartbeats([LOCAL_ENGINE], ["n1"], now=now)
    for _ in range(2):
        update_node_health(now + LOST_AFTER + A_TICK, listening_since=now)
    assert node.events.filter(kind="health").count() == 1


class Cable:
    """What lies between us and the machines; the test may pull it."""

    pulled = False


class FarEngine(LocalEngine):
    """The real engine at the other end of a cable: what it is told goes nowhere while that is pulled."""

    cable = Cable()

    def nodes(self) -> list[NodeReport]:
        return [] if self.cable.pulled else super().nodes()

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [] if self.cable.pulled else super().poll(attempts)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        if not self.cable.pulled:
            super().stop(attempt, reason=reason, grace=grace)


@pytest.fixture
def cable(lab: Lab, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cable]:
    """Between the scheduler and `n1`, on which one job runs that has the only GPU."""

    def far(setup: EngineSetup) -> LocalEngine:
        root: Path = settings.MOTLEY_ENGINE_ROOT
        return FarEngine(root, declared=setup.emulated, job_user=settings.MOTLEY_JOB_USER or None)

    monkeypatch.setitem(fleet.FACTORIES, Engine.Kind.LOCAL.value, far)
    lab.node("n1", gpus=1)
    lab.running(lab.submit(UNTIL_LET_GO))
    yield FarEngine.cable
    FarEngine.cable.pulled = False


def wait_in_silence(lab: Lab, cable: Cable, length: timedelta) -> None:
    """The scheduler ticks, and hears nothing; with long rounds, for nothing is to be decided."""
    cable.pulled = True
    lab.policy(round_s=3600)
    with lab.clock_stopped():
        for _ in range(length // A_TICK):
            lab.ahead += A_TICK
            lab.tick()
    lab.policy()


def test_a_node_that_is_silent_for_a_while_is_suspect(lab: Lab, cable: Cable) -> None:
    wait_in_silence(lab, cable, SUSPECT_AFTER + 2 * A_TICK)
    assert Node.objects.get().health == Health.SUSPECT


def test_a_job_on_a_suspect_node_goes_on(lab: Lab, cable: Cable) -> None:
    wait_in_silence(lab, cable, SUSPECT_AFTER + 2 * A_TICK)
    assert Job.objects.get().state == State.RUNNING


def test_the_job_of_a_lost_node_is_requeued(lab: Lab, cable: Cable) -> None:
    wait_in_silence(lab, cable, LOST_AFTER + 2 * A_TICK)
    job = Job.objects.get()
    assert (job.state, job.attempts.get().outcome, job.losses) == (State.QUEUED, Attempt.Outcome.LOST, 1)


def test_the_gpus_of_a_lost_node_are_not_handed_on(lab: Lab, cable: Cable) -> None:
    wait_in_silence(lab, cable, LOST_AFTER + 2 * A_TICK)
    assert lab.gpus_held(Job.objects.get()) == {"n1/0"}


def test_a_job_that_waits_for_gpus_of_a_lost_node_goes_back_to_the_queue(lab: Lab, cable: Cable) -> None:
    heir = lab.submit(name="heir")
    cable.pulled = True
    lab.round()
    lab.round()
    assert heir.attempts.get().state == Attempt.State.CLAIMED
    wait_in_silence(lab, cable, LOST_AFTER + 2 * A_TICK)
    heir.refresh_from_db()
    assert heir.state == State.QUEUED


def test_the_job_of_a_lost_node_runs_again_when_there_is_room(lab: Lab, cable: Cable) -> None:
    job = Job.objects.get()
    wait_in_silence(lab, cable, LOST_AFTER + 2 * A_TICK)
    cable.pulled = False
    lab.until(lambda: job.attempts.filter(number=2, state=Attempt.State.RUNNING).exists())


def test_what_is_left_on_a_node_that_comes_back_is_gone_before_its_gpus_are_handed_on(lab: Lab, cable: Cable) -> None:
    job = Job.objects.get()
    wait_in_silence(lab, cable, LOST_AFTER + 2 * A_TICK)
    cable.pulled = False
    lab.until(lambda: job.attempts.filter(number=2).exists())
    first, second = lab.attempts(job)
    assert first.gone_at is not None
    assert first.gone_at <= second.claimed_at


def test_after_an_outage_of_its_own_the_scheduler_listens_before_it_judges(lab: Lab, cable: Cable) -> None:
    cable.pulled = True
    lab.ahead += LOST_AFTER * 10
    lab.tick()
    assert Node.objects.get().health == Health.HEALTHY
