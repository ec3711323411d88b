"""Several engines: one that does not answer, is disabled or cannot be made stops no other."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from cluster_app.models import LOCAL_ENGINE, LOST_AFTER, SUSPECT_AFTER, Engine, GpuType, Node
from cluster_app.services import add_node, drain, resume
from connections_app import engine_registry as registry
from engines.local.engine import LocalEngine
from engines.protocol import (
    AttemptReport,
    EngineError,
    EngineUnreachable,
    GpuReport,
    Launch,
    NodeReport,
    NodeState,
)
from engines.slurm.options import SlurmOptions
from insight_app.explain.dry_run import dry_run
from jobs_app.errors import InvalidSpec
from jobs_app.models import Attempt, Job, Reason
from operations.metrics import exposition
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab

State, Health = Job.State, Node.Health
A_TICK = timedelta(seconds=9)


class Link:
    """What the far engine answers: everything, or that it cannot be reached; and what it says of its nodes."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.asked, self.takes_s = 0, 0.0

    down = False
    takes_launches = True
    refusal = ""


class FarEngine(LocalEngine):
    """The real local engine over a link that may be down; it reports the nodes f1 and f2, with two V100 each."""

    link = Link()

    def nodes(self) -> list[NodeReport]:
        self.link.asked += 1
        time.sleep(self.link.takes_s)
        self._refuse_if_down()
        gpus = (GpuReport(0), GpuReport(1))
        return [replace(NodeReport(name, "v100", gpus, 8, 1024), **self.link.said) for name in ("f1", "f2")]

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {name: self.link.refusal for name, reason in wanted.items() if reason and self.link.refusal}

    def launch(self, launch: Launch) -> None:
        if not self.link.takes_launches:
            raise EngineUnreachable("sbatch does not answer: start slurmctld.")
        super().launch(launch)

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        self._refuse_if_down()
        return super().poll(attempts)

    def _refuse_if_down(self) -> None:
        if self.link.down:
            raise EngineError("squeue does not answer: start slurmctld.")


@pytest.fixture
def link(lab: Lab, monkeypatch: pytest.MonkeyPatch, job_user: str) -> Link:
    """A second engine `far` with the node f1 of V100, beside n1 of A100 at the local engine."""

    def far(setup: registry.EngineSetup) -> LocalEngine:
        return FarEngine(lab.root, job_user=job_user or None)

    monkeypatch.setattr(FarEngine, "link", Link())
    monkeypatch.setitem(registry.FACTORIES, Engine.Kind.SLURM.value, far)
    Engine.objects.create(name="far", kind=Engine.Kind.SLURM, options={"root": "/shared"})
    lab.node("n1", "a100", gpus=1)
    lab.node("f1", "v100", gpus=1)
    Node.objects.filter(name="f1").update(engine="far", emulated=False)
    return FarEngine.link


@pytest.fixture
def ada(link: Link, lab: Lab, plain_static: None) -> APIClient:
    return caller(lab.user())


def wait(lab: Lab, length: timedelta) -> None:
    """The scheduler ticks; with long rounds, for nothing is to be decided."""
    lab.policy(round_s=3600)
    with lab.clock_stopped():
        for _ in range(length // A_TICK):
            lab.ahead += A_TICK
            lab.tick()
    lab.policy()


def on(lab: Lab, gpu_type: str) -> Job:
    job = lab.submit(UNTIL_LET_GO, gpu_types=[gpu_type])
    lab.running(job)
    return job


def health(name: str) -> str:
    return Node.objects.get(name=name).health


def test_jobs_run_at_two_engines_at_once(lab: Lab, link: Link) -> None:
    near, far = on(lab, "a100"), on(lab, "v100")
    assert [job.attempts.get().engine for job in (near, far)] == [LOCAL_ENGINE, "far"]


def test_an_engine_that_does_not_answer_stops_no_other(lab: Lab, link: Link) -> None:
    link.down = True
    lab.until_state(lab.submit(gpu_types=["a100"]), State.SUCCEEDED)


def test_the_fault_of_an_engine_is_on_its_row_and_in_the_metrics_until_it_answers(lab: Lab, link: Link) -> None:
    lab.tick()
    assert b'motley_engine_up{engine="far"} 1.0' in exposition()
    link.down = True
    lab.tick()
    engine = Engine.objects.get(name="far")
    assert (engine.fault, engine.answers) == ("squeue does not answer: start slurmctld.", False)
    assert b'motley_engine_up{engine="far"} 0.0' in exposition()
    failed_since = engine.since
    lab.ahead += A_TICK
    lab.tick()
    engine.refresh_from_db()
    assert engine.since == failed_since
    link.down = False
    lab.tick()
    engine.refresh_from_db()
    assert (engine.fault, engine.answers) == ("", True)


def test_nodes_of_an_engine_that_does_not_answer_are_suspect_and_never_lost(lab: Lab, link: Link) -> None:
    job = on(lab, "v100")
    link.down = True
    wait(lab, 2 * LOST_AFTER)
    assert (health("f1"), health("n1")) == (Health.SUSPECT, Health.HEALTHY)
    job.refresh_from_db()
    assert job.state == State.RUNNING


def test_a_node_that_its_engine_no_longer_reports_is_lost_only_after_the_engine_has_answered_for_long(
    lab: Lab, link: Link
) -> None:
    lab.tick()
    Node.objects.filter(name="f1").update(name="f3")
    link.down = True
    wait(lab, 2 * LOST_AFTER)
    link.down = False
    wait(lab, SUSPECT_AFTER + 2 * A_TICK)
    assert health("f3") == Health.SUSPECT
    wait(lab, LOST_AFTER + 2 * A_TICK)
    assert health("f3") == Health.LOST


def test_a_node_is_heard_by_its_own_engine_alone(lab: Lab, link: Link) -> None:
    Node.objects.filter(name="f1").update(engine=LOCAL_ENGINE, heard_at=None)
    add_node("f2", GpuType.objects.get(name="v100"), gpus=1, cpus=8, memory_mib=1024, engine="far")
    link.down = True
    lab.tick()
    assert Node.objects.get(name="f2").heard_at is None
    link.down = False
    lab.tick()
    assert Node.objects.get(name="f2").heard_at is not None


def test_a_disabled_engine_gets_no_new_job_and_its_running_job_goes_on(lab: Lab, link: Link) -> None:
    job = on(lab, "v100")
    Engine.objects.filter(name="far").update(enabled=False)
    waiting = lab.submit(gpu_types=["v100"])
    lab.let_go(job)
    lab.until_state(job, State.SUCCEEDED)
    lab.round()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempt_count) == (State.QUEUED, 0)


def test_a_launch_that_does_not_reach_its_engine_is_sent_again(lab: Lab, link: Link) -> None:
    link.takes_launches = False
    job = lab.submit(gpu_types=["v100"])
    lab.round()
    lab.round()
    assert job.attempts.get().state == Attempt.State.LAUNCHING
    link.takes_launches = True
    lab.until_state(job, State.SUCCEEDED)
    assert job.attempt_count == 1


def test_a_job_that_was_placed_at_an_engine_before_it_was_disabled_goes_back_to_the_queue(lab: Lab, link: Link) -> None:
    link.takes_launches = False
    job = lab.submit(gpu_types=["v100"])
    lab.round()
    Engine.objects.filter(name="far").update(enabled=False)
    lab.round()
    job.refresh_from_db()
    assert (job.state, job.attempts.get().message) == (State.QUEUED, "The engine far was disabled.")


def test_an_engine_that_cannot_be_made_says_why(lab: Lab, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(setup: registry.EngineSetup) -> LocalEngine:
        raise EngineError("There is no user motley on this machine: create it.")

    monkeypatch.setitem(registry.FACTORIES, Engine.Kind.SLURM.value, broken)
    registry.engine_over.cache_clear()
    lab.until_state(lab.submit(gpu_types=["a100"]), State.SUCCEEDED)
    assert Engine.objects.get(name="far").fault == "There is no user motley on this machine: create it."


def test_an_attempt_of_an_engine_that_is_gone_stops_no_other(lab: Lab, link: Link) -> None:
    job = on(lab, "v100")
    Node.objects.filter(name="f1").update(engine=LOCAL_ENGINE)
    Engine.objects.get(name="far").delete()
    Attempt.objects.update(state=Attempt.State.STOPPING, stop_reason="cancel")
    lab.until_state(lab.submit(gpu_types=["a100"]), State.SUCCEEDED)
    with pytest.raises(EngineError, match="no engine far"):
        lab.output(job)


def test_an_engine_that_takes_long_to_fail_is_asked_less_often(lab: Lab, link: Link) -> None:
    link.down, link.takes_s = True, 0.2
    with lab.clock_stopped():
        lab.tick()
        lab.tick()
        assert link.asked == 1
        lab.ahead += timedelta(seconds=5)
        lab.tick()
        assert link.asked == 2


def test_engines_are_made_once_for_the_same_row(lab: Lab, link: Link) -> None:
    first = registry.engines()["far"]
    assert registry.engines()["far"] is first
    Engine.objects.filter(name="far").update(options={"root": "/elsewhere"})
    assert registry.engines()["far"] is not first


# -- nodes that their engine hears, or does not -------------------------------------------------------------------


def add_far_node(name: str, *, gpus: int = 2) -> Node:
    kind = GpuType.objects.get(name="v100")
    return add_node(name, kind, gpus=gpus, cpus=8, memory_mib=1024, engine="far")


def said_of(api: APIClient, name: str) -> dict[str, Any]:
    return dict(api.get(f"/api/v1/nodes/{name}").json())


def test_a_node_that_no_engine_has_heard_is_unknown_and_gets_no_job(lab: Lab, link: Link, ada: APIClient) -> None:
    Node.objects.exclude(name="n1").delete()
    add_far_node("f9")
    lab.tick()
    job = lab.submit(gpu_types=["v100"])
    lab.round()
    job.refresh_from_db()
    answer = said_of(ada, "f9")
    assert (job.state, health("f9"), answer["health"]) == (State.QUEUED, Health.UNKNOWN, "unknown")
    text = "The engine far does not report this node; it reports: f1 (2 v100), f2 (2 v100)."
    assert answer["engine_message"] == text


def test_a_new_node_takes_jobs_as_soon_as_its_engine_hears_from_it(lab: Lab, link: Link) -> None:
    add_far_node("f2")
    assert health("f2") == Health.UNKNOWN
    job = lab.until_state(lab.submit(gpu_types=["v100"], gpus=2), State.SUCCEEDED)
    assert job.attempts.get().nodes == ["f2"]


def test_a_real_node_of_this_machine_that_does_not_exist_stays_unknown(lab: Lab, link: Link) -> None:
    Node.objects.filter(name="n1").update(emulated=False, health=Health.UNKNOWN)
    lab.tick()
    assert health("n1") == Health.UNKNOWN


def test_a_node_that_its_engine_cordons_gets_no_job_and_keeps_the_administrators_state(
    lab: Lab, link: Link, ada: APIClient
) -> None:
    job = on(lab, "v100")
    link.said = {"state": NodeState.CORDONED, "reason": "new fan [root]"}
    waiting = lab.submit(gpu_types=["v100"])
    lab.let_go(job)
    lab.until_state(job, State.SUCCEEDED)
    lab.round()
    waiting.refresh_from_db()
    assert waiting.state == State.QUEUED
    node = Node.objects.get(name="f1")
    assert (node.state, node.health, node.engine_reason) == ("ready", "healthy", "new fan [root]")
    assert said_of(ada, "f1")["engine_message"] == "The engine far gives it no new jobs: new fan [root]"
    link.said = {}
    lab.until_state(waiting, State.SUCCEEDED)


def test_a_drain_that_the_site_refuses_is_told_until_the_node_is_resumed(
    lab: Lab, link: Link, ada: APIClient, client: Client
) -> None:
    client.force_login(lab.user())
    link.refusal = "Slurm refused to drain it: scontrol said: Invalid user id"
    node = Node.objects.get(name="f1")
    drain(node, reason="bad fan", actor=None)
    lab.tick()
    assert said_of(ada, "f1")["engine_message"] == link.refusal
    assert link.refusal in client.get("/cluster").content.decode()
    resume(node, actor=None)
    lab.tick()
    assert said_of(ada, "f1")["engine_message"] == ""


def test_a_node_that_its_engine_does_not_hear_is_suspect_with_the_engines_words(
    lab: Lab, link: Link, ada: APIClient
) -> None:
    lab.tick()
    link.said = {"state": NodeState.SILENT, "reason": "Not responding"}
    wait(lab, SUSPECT_AFTER + 2 * A_TICK)
    assert said_of(ada, "f1")["health"] == "suspect"
    assert said_of(ada, "f1")["engine_message"] == "The engine far does not hear from it: Not responding"


def test_gpus_that_others_use_are_not_given_to_jobs(lab: Lab, link: Link, ada: APIClient) -> None:
    link.said = {"foreign_gpus": 1}
    add_far_node("f2")
    Node.objects.filter(name="f1").delete()
    lab.tick()
    assert said_of(ada, "f2")["free_gpus"] == 1
    assert ada.get("/api/v1/gpu-types/v100").json()["free_gpus"] == 1
    job = lab.submit(gpu_types=["v100"], gpus=2)
    lab.running(lab.submit(UNTIL_LET_GO, gpu_types=["v100"]))
    lab.round()
    job.refresh_from_db()
    assert job.state == State.QUEUED
    assert said_of(ada, "f2")["free_gpus"] == 0


def test_a_job_waits_for_jobs_outside_and_says_so(lab: Lab, link: Link) -> None:
    link.said = {"foreign_gpus": 1}
    job = lab.submit(gpu_types=["v100"])
    lab.tick()
    lab.round()
    job.refresh_from_db()
    assert "jobs outside Motley use their GPUs" in job.message
    link.said = {}
    lab.until_state(job, State.SUCCEEDED)


@pytest.mark.parametrize("uneven", [False, True])
def test_a_gang_runs_at_the_engine_that_has_its_gpus(lab: Lab, link: Link, *, uneven: bool) -> None:
    lab.node("n2", "v100", gpus=1)  # of one GPU, as those of the other engine
    add_far_node("f2", gpus=1)
    jobs = [lab.submit(gpu_types=["v100"], gpus=2, uneven_gang=uneven) for _ in range(2)]
    for job in jobs:
        lab.until_state(job, State.SUCCEEDED)
        assert sorted(job.attempts.get().nodes) == ["f1", "f2"]


def test_a_gang_waits_for_gpus_of_one_engine_and_says_so(lab: Lab, link: Link) -> None:
    lab.node("n2", "v100", gpus=1)
    add_far_node("f2", gpus=1)
    Node.objects.filter(name="n2").update(state=Node.State.CORDONED, reason="the first job shall run at far")
    busy = lab.submit(UNTIL_LET_GO, gpu_types=["v100"], preemptible=False)  # else it would make room
    lab.running(busy)
    Node.objects.filter(name="n2").update(state=Node.State.READY, reason="")
    job = lab.submit(gpu_types=["v100"], gpus=2)
    lab.round()
    lab.round()
    job.refresh_from_db()
    assert (job.state, job.attempt_count, job.reason) == (State.QUEUED, 0, Reason.FRAGMENTED)
    assert job.message == (
        "2 V100 are left, but at several engines: a gang runs at one of them, "
        "and at most 1 of the 2 that are needed are left at any."
    )
    plan = dry_run({"name": "g", "command": "true", "gpus": 2, "gpu_types": ["v100"]}, owner=lab.user())
    (option,) = (option for option in plan["options"] if option["gpu_type"] == "v100")
    assert option["reason"] == "2 GPUs free, but at several engines: a gang runs at one"
    lab.let_go(busy)
    lab.until_state(job, State.SUCCEEDED)


def test_a_gang_that_no_engine_alone_could_run_is_refused(lab: Lab, link: Link) -> None:
    lab.node("n2", "v100", gpus=1)
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(gpu_types=["v100"], gpus=2)
    assert "1 V100. All GPUs of a job are at one engine." in str(refused.value.faults)


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("local", {"root": "/x"}, "Unknown options: root. Known options: none."),
        ("slurm", {}, "The option root is missing"),
        ("slurm", {"root": "shared"}, "option root is 'shared': write an absolute path"),
        ("slurm", {"root": "/s", "nodelist": "n1"}, "Unknown options: nodelist. Known options: root, partition"),
        ("slurm", {"root": "/s", "partition": "--uid=0"}, "option partition is '--uid=0': write a name"),
        ("slurm", {"root": "/s", "constraint": "a b"}, "option constraint is 'a b': write features"),
        ("slurm", {"root": "/s", "cpus_per_gpu": True}, "option cpus_per_gpu is True: write a whole number"),
        ("slurm", {"root": "/s", "memory_mib_per_gpu": 0}, "option memory_mib_per_gpu is 0: write a whole number"),
        ("slurm", {"root": "/s", "python": 3}, "option python is 3: write an absolute path"),
        ("slurm", {"root": "/s", "drain": "yes"}, "option drain is 'yes': write true or false"),
    ],
)
def test_options_are_refused_with_their_name_and_the_remedy(kind: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(EngineError) as refused:
        registry.check_options(kind, options)
    assert words in str(refused.value)


def test_good_options_are_taken() -> None:
    found = SlurmOptions.of({"root": "/shared/motley", "partition": "gpu", "constraint": "a100&ib", "cpus_per_gpu": 8})
    assert (found.root, found.python) == (Path("/shared/motley"), Path("/usr/bin/python3"))
    assert (found.partition, found.constraint, found.cpus_per_gpu, found.slurm_conf) == ("gpu", "a100&ib", 8, None)
