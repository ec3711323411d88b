"""Machines that join: tokens, where jobs may run, and that no job runs twice; the agents are played over REST."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import time, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from cluster_app.models import Engine, Node
from cluster_app.services import cordon
from cluster_app.storage import Volunteers
from connections_app.agents.after_restore import expect_agents, lease_to_outlast_s, leases_before
from connections_app.agents.join_agent import issue_join_token, revoke_agent
from connections_app.agents.silence import granted_lease_s, last_news
from connections_app.agents.sync import ANY_MARK, LEAVING, AgentState, answer_to
from connections_app.agents.uploads import checkpoints_of
from connections_app.engine_registry import engines
from connections_app.models import Agent, AgentAttempt
from connections_app.probe import ask_for_probe
from engines.agent.agent import Agent as RealAgent
from engines.agent.codec import encode
from engines.agent.connection import Connection
from engines.agent.messages import VERSION, AttemptNews, Joining, Lending, Sync
from engines.local.engine import LocalEngine
from engines.protocol import AttemptReport, GpuReport, Launch, NodeFault, Phase, Progress, StopReason
from jobs_app.errors import InvalidSpec
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Attempt, Job, Team
from jobs_app.secrets import set_secret
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy
from scheduler_app.round.reconcile import observe
from tests.engines.stand_in_cgroup import StandInCgroup
from tests.played_agent import DESK, JOINING, Played, machine_named, over, running
from tests.service_lab import Lab

SAVED = gzip.compress(b"saved")


@pytest.fixture
def lab(lab: Lab, settings: Settings, tmp_path: Path) -> Lab:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return lab


@pytest.fixture
def desk(lab: Lab) -> Played:
    return Played(lab)


def test_a_machine_joins_as_a_node_with_its_window_and_its_notice(lab: Lab) -> None:
    hours = Lending(time(20), time(8), "Europe/Berlin")
    assert Played(lab, joining=replace(JOINING, lending=hours)).joined == 200
    node = Node.objects.get(name="desk")
    assert (str(node.gpu_type), node.gpu_set.count(), node.emulated) == ("k80", 2, True)
    assert (node.lent_from, node.lent_until, node.lent_zone) == (time(20), time(8), "Europe/Berlin")
    assert (node.capacity_type, node.notice_s) == (Node.CapacityType.VOLUNTEER, 600)


def test_a_join_token_is_of_one_machine(desk: Played) -> None:
    assert desk.join(JOINING) == 200  # the answer was lost, and it asks again
    assert desk.join(replace(JOINING, token="agent_of_another")) == 401


def test_a_gpu_that_another_node_has_joins_no_second_time(lab: Lab) -> None:
    def joining(name: str, *uuids: str) -> Joining:
        node = replace(DESK, gpus=[GpuReport(index, uuid) for index, uuid in enumerate(uuids)])
        return replace(JOINING, node=node, token=f"agent_{name}")

    assert Played(lab, joining=joining("desk", "GPU-1", "GPU-2")).joined == 200
    assert Played(lab, "attic", joining=joining("attic", "GPU-3", "GPU-2")).joined == 409
    assert Played(lab, "cellar", joining=joining("cellar", "GPU-4", "GPU-4")).joined == 409
    assert Played(lab, "shed", joining=joining("shed", "GPU-" + 80 * "5")).joined == 409
    large = replace(JOINING, node=replace(DESK, memory_mib=2**40), token="agent_barn")
    assert Played(lab, "barn", joining=large).joined == 409


def test_a_loss_without_a_bound_is_refused(desk: Played, lab: Lab) -> None:
    job = lab.submit("sleep 60", gpu_types=["k80"])
    (launch,) = desk.given().launches
    progress = Progress(1, 1, lab.now, 1, lab.now, loss=1.0)
    told = encode(
        replace(told_by(desk), attempts=[AttemptNews(replace(running(launch.attempt, lab).report, progress=progress))])
    )
    text = json.dumps(told).replace('"loss": 1.0', '"loss": 1e999')
    answer = desk.client().post("/api/v1/agent/sync", text, content_type="application/json")
    assert (answer.status_code, job.attempts.get().loss) == (422, None)


def test_an_expired_or_revoked_join_token_is_refused(lab: Lab) -> None:
    _, text = issue_join_token("late", trusted=False, actor=None, now=lab.now - timedelta(days=2))
    agent, revoked = issue_join_token("gone", trusted=False, actor=None, now=lab.now)
    revoke_agent(agent, actor=None, now=lab.now)
    client = APIClient()
    for token in (text, revoked, "join_unknown"):
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        assert client.post("/api/v1/agent/join", encode(JOINING), format="json").status_code == 401
    assert not Engine.objects.filter(kind=Engine.Kind.AGENT).exists()


def test_a_new_join_token_revives_no_machine_that_was_revoked(desk: Played, lab: Lab) -> None:
    revoke_agent(desk.agent, actor=None, now=lab.now)
    _, text = issue_join_token("desk", trusted=True, actor=None, now=lab.now)
    told = encode(Sync(VERSION, "machine", DESK))
    assert desk.post("sync", told, desk.token) == 401
    assert desk.post("join", encode(replace(JOINING, token="agent_new")), text) == 200
    assert (desk.post("sync", told, "agent_new"), desk.post("sync", told, desk.token)) == (200, 401)


def test_whose_machine_it_is_is_said_with_its_token(lab: Lab) -> None:
    lab.team("speech")
    call_command("jointoken", "desk", "--team", "speech", stdout=StringIO())
    assert str(Agent.objects.get().team) == "speech"
    call_command("jointoken", "desk", stdout=StringIO())
    assert str(Agent.objects.get().team) == "speech"
    with pytest.raises(CommandError, match=r"--team: there is no team 'sales'; the teams: .*speech"):
        call_command("jointoken", "attic", "--team", "sales")


def test_over_rest_a_machine_has_its_team_and_its_state(lab: Lab) -> None:
    lab.team("speech")
    client = APIClient()
    client.force_authenticate(lab.user("root", staff=True))
    made = client.post("/api/v1/agents", {"name": "desk", "team": "speech"}, format="json").json()
    assert (made["team"], made["state"]) == ("speech", "invited")
    refused = client.post("/api/v1/agents", {"name": "attic", "team": "sales"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/team")


def test_members_see_the_machines_of_their_teams_over_rest_and_change_none(lab: Lab) -> None:
    for name, team in (("desk", "speech"), ("attic", "vision")):
        lab.team(team)
        call_command("jointoken", name, "--team", team, stdout=StringIO())
    client = APIClient()
    client.force_authenticate(lab.user("eve", "speech"))
    assert [one["name"] for one in client.get("/api/v1/agents").json()["results"]] == ["desk"]
    assert client.delete("/api/v1/agents/desk").status_code == 403


def test_trust_comes_with_the_machine_that_joins_and_goes_at_once(lab: Lab) -> None:
    def trust() -> tuple[bool, bool]:
        return Agent.objects.get(name="desk").trusted, Engine.objects.get(name="desk").trusted

    desk = Played(lab, trusted=False)
    _, text = issue_join_token("desk", trusted=True, actor=None, now=lab.now)
    assert trust() == (False, False)
    assert desk.post("join", encode(replace(JOINING, token="agent_new")), text) == 200
    assert trust() == (True, True)
    issue_join_token("desk", trusted=False, actor=None, now=lab.now)
    assert trust() == (False, False)


def test_a_machine_that_takes_the_place_of_another_inherits_no_attempt(desk: Played, lab: Lab) -> None:
    """It joins only when the lease of the one before is over; what that one ran is lost, and runs again."""
    job = lab.submit("sleep 60", gpu_types=["k80"])
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab))
    lab.running(job)
    _, text = issue_join_token("desk", trusted=True, actor=None, now=lab.now)
    new = encode(replace(JOINING, token="agent_new"))
    assert desk.post("join", new, text) == 409
    Agent.objects.update(heard_at=timezone.now() - timedelta(seconds=settings.MOTLEY_AGENT_LEASE_S + 1))
    assert desk.post("join", new, text) == 200
    desk.token, desk.mark = "agent_new", ""
    again = desk.given().launches
    first, second = lab.attempts(job)
    assert (first.outcome, first.gone_at is not None) == ("lost", True)
    assert [one.attempt for one in again] == [second.pk]


def test_a_launch_that_no_machine_has_had_goes_to_the_next_one(desk: Played, lab: Lab) -> None:
    desk.sync()
    job = lab.submit(gpu_types=["k80"])
    lab.until(AgentAttempt.objects.exists)
    _, text = issue_join_token("desk", trusted=True, actor=None, now=lab.now)
    assert desk.post("join", encode(replace(JOINING, token="agent_new")), text) == 200
    desk.token, desk.mark = "agent_new", ""
    assert [one.attempt for one in desk.given().launches] == [one.pk for one in lab.attempts(job)]


def test_a_machines_token_is_good_for_nothing_else(desk: Played, lab: Lab) -> None:
    job = lab.submit()
    for path in ("jobs", f"jobs/{job.pk}", f"jobs/{job.pk}/logs", "nodes", "me", "agents", "secrets", "tokens"):
        assert desk.client().get(f"/api/v1/{path}").status_code == 401, path
    assert desk.client(desk.join_token).get("/api/v1/jobs").status_code == 401
    assert desk.post("sync", {}, desk.join_token) == 401


def test_a_token_that_came_to_another_machine_is_refused(desk: Played) -> None:
    told = encode(Sync(VERSION, "another", DESK))
    assert desk.post("sync", told, desk.token) == 409


def test_no_machine_sees_the_launch_of_another(desk: Played, lab: Lab) -> None:
    other = Played(lab, "attic", joining=replace(JOINING, token="agent_attic"))
    lab.submit(gpu_types=["k80"])
    (launch,) = lab.until(lambda: [*desk.sync().launches, *other.sync().launches] or None)
    stranger = other if AgentAttempt.objects.get(attempt=launch.attempt).agent == desk.agent else desk
    assert stranger.sync().launches == ()
    put = stranger.client().put
    path = f"/api/v1/agent/attempts/{launch.attempt}"
    assert put(f"{path}/logs/stdout/0?offset=0", b"x", content_type="application/octet-stream").status_code == 404
    assert put(f"{path}/checkpoints", b"x", content_type="application/gzip").status_code == 404


def test_a_launch_is_repeated_until_it_is_reported_and_is_encrypted_meanwhile(desk: Played, lab: Lab) -> None:
    job = lab.submit("echo very-private", gpu_types=["k80"])
    (launch,) = desk.given().launches
    assert "very-private" not in AgentAttempt.objects.get(attempt=launch.attempt).launch
    assert desk.sync().launches == (launch,)
    assert desk.sync(running(launch.attempt, lab)).launches == ()
    assert AgentAttempt.objects.get(attempt=launch.attempt).launch == ""
    lab.running(job)


def test_a_machine_that_is_cut_off_has_its_job_run_elsewhere_once(desk: Played, lab: Lab) -> None:
    """What it says when it is back is of an old attempt: it saves nothing over the new one's work, and is forgotten."""
    job = lab.submit("sleep 60", gpu_types=["k80"])
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab))
    lab.running(job)
    lab.node("stays", "k80", gpus=1)
    forget_that_it_was_heard(desk)
    for _ in range(40):  # the scheduler listens all the time
        lab.ahead += timedelta(seconds=8)
        observe(lab.fence, lab.now)
    assert Node.objects.get(name="desk").health == Node.Health.LOST
    lab.until(lambda: job.attempts.filter(number=2, state="running").exists())
    first, second = lab.attempts(job)
    assert (first.outcome, second.nodes) == ("lost", ["stays"])
    path = f"/api/v1/agent/attempts/{launch.attempt}/checkpoints"
    assert desk.client().put(path, b"old", content_type="application/gzip").status_code == 409
    assert not checkpoints_of(UUID(str(job.pk))).exists()
    desk.sync(over(launch.attempt, lab))
    lab.until(lambda: launch.attempt in desk.sync(over(launch.attempt, lab)).forget)
    assert [attempt.state for attempt in lab.attempts(job)] == ["ended", "running"]


def forget_that_it_was_heard(desk: Played) -> None:
    """As after a long silence: the engine has seen no new message for its own while."""
    last_news[desk.name].found_s = -1e9


class OverRest(Connection):
    """The connection of a real agent, to the service in this process."""

    def __init__(self, desk: Played) -> None:
        super().__init__("http://localhost", desk.token)
        self._desk, self._kept = desk, None  # as by a proxy

    def _request(self, method: str, path: str, body: Any, *, content_type: str = "application/json", **_: Any) -> bytes:
        answer = self._desk.client().generic(method, f"/api/v1/agent/{path}", body, content_type=content_type)
        assert answer.status_code == 200, answer.content
        return bytes(answer.content)


def test_the_test_of_an_engine_passes_at_a_real_agent_and_leaves_nothing_there(
    desk: Played, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.agent.agent.machine_digest", lambda: "machine")
    connection, engine = OverRest(desk), LocalEngine(tmp_path / "engine", declared=[desk.name])
    describe = machine_named(desk.name)
    agent = RealAgent(tmp_path, connection, engine, describe, notice=timedelta())
    probe = ask_for_probe(Engine.objects.get(name=desk.name), actor=None)

    def has_ended() -> bool:
        agent.turn()
        agent._transfers.turn()  # a thread of its own does it otherwise
        probe.refresh_from_db()
        return probe.ended_at is not None

    lab.until(has_ended)
    assert (probe.passed, probe.message) == (True, "")
    assert "wrote and read" in probe.log
    lab.until(lambda: agent.turn() or not engine.attempts())


def test_the_share_of_a_job_at_a_real_agent_changes_while_it_runs(
    desk: Played, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits follow when another job starts beside it, and when that has ended."""
    monkeypatch.setattr("engines.agent.agent.machine_digest", lambda: "machine")
    setting = PolicySetting(policy="fifo", cpu_memory="tune", round_length_s=1, min_run_s=0)
    choose_policy(setting, actor=None)
    engine = LocalEngine(tmp_path / "engine", declared=[desk.name])
    describe = machine_named(desk.name)
    agent = RealAgent(tmp_path, OverRest(desk), engine, describe, notice=timedelta())

    def turns_until(look: Callable[[], bool]) -> None:
        lab.until(lambda: (agent.turn(), agent._transfers.turn()) and look())

    first = lab.submit("sleep 60", gpu_types=["k80"], sensitivity={"cpu_curve": {4: 1.0, 8: 2.0}})
    turns_until(lambda: lab.attempts(first) != [] and lab.attempts(first)[0].state == "running")
    (attempt,) = lab.attempts(first)
    assert (attempt.cpus_per_gpu, attempt.told_cpus_per_gpu) == (8, 8)
    (folder := tmp_path / "cgroup").mkdir()
    cgroup = StandInCgroup.of(tmp_path / "engine", attempt.pk, folder, cpu_weight="800")
    second = lab.submit("sleep 60", gpu_types=["k80"])
    turns_until(lambda: cgroup.holds("cpu.weight", "400"))
    cancel_job(second, actor=None)
    turns_until(lambda: cgroup.holds("cpu.weight", "800"))
    assert [one.cpu_memory for one in lab.attempts(first)] == [Attempt.CpuMemory.RAISED]
    cancel_job(first, actor=None)
    turns_until(lambda: not engine.attempts())


@pytest.mark.thorough
def test_a_job_at_a_real_agent_is_told_while_it_runs_when_checkpoints_pay(
    desk: Played, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.agent.agent.machine_digest", lambda: "machine")
    engine = LocalEngine(tmp_path / "engine", declared=[desk.name])
    agent = RealAgent(tmp_path, OverRest(desk), engine, machine_named(desk.name), notice=timedelta())

    def turns_until(look: Callable[[], bool]) -> None:
        lab.until(lambda: (agent.turn(), agent._transfers.turn()) and look())

    job = lab.submit('until grep -q 4321 "$MOTLEY_CHECKPOINT_TIMES_FILE"; do sleep 0.05; done', gpu_types=["k80"])
    turns_until(lambda: lab.attempts(job) != [] and lab.attempts(job)[0].state == "running")
    (attempt,) = lab.attempts(job)
    assert attempt.checkpoint_times["mean_up_s"] > 0
    Attempt.objects.update(checkpoint_times=attempt.checkpoint_times | {"mean_up_s": 4321.0})
    turns_until(lambda: lab.attempts(job)[0].outcome == "succeeded")
    turns_until(lambda: not engine.attempts())


def test_an_end_counts_when_logs_and_checkpoints_have_come(desk: Played, lab: Lab) -> None:
    job = lab.submit("sleep 60", gpu_types=["k80"])
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab))
    lab.running(job)
    desk.sync(replace(over(launch.attempt, lab), handed_over=False))
    lab.tick()
    job.refresh_from_db()
    assert job.state == Job.State.RUNNING
    put = desk.client().put
    path = f"/api/v1/agent/attempts/{launch.attempt}"
    assert put(f"{path}/checkpoints", SAVED, content_type="application/gzip").status_code == 200
    pieces = [(0, b"one\n"), (0, b"one\n"), (4, b"two\n")]
    for offset, data in pieces:
        put(f"{path}/logs/stdout/0?offset={offset}", data, content_type="application/octet-stream")
    desk.sync(over(launch.attempt, lab))
    lab.until_state(job, Job.State.FAILED)
    assert lab.output(job) == "one\ntwo\n"
    assert checkpoints_of(UUID(str(job.pk))).read_bytes() == SAVED


def test_a_stop_before_the_launch_was_fetched_withdraws_it(desk: Played, lab: Lab) -> None:
    desk.sync()
    job = lab.submit(gpu_types=["k80"])
    lab.until(AgentAttempt.objects.exists)
    cancel_job(job, actor=job.owner)
    lab.until_state(job, Job.State.CANCELLED)
    assert desk.sync() == replace(desk.sync(), launches=())


def test_a_machine_that_leaves_is_drained_goes_and_comes_back(desk: Played, lab: Lab) -> None:
    job = lab.submit("sleep 60", gpu_types=["k80"])
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab))
    lab.running(job)
    leaving = {"leaving": timedelta(minutes=1)}
    assert not desk.sync(running(launch.attempt, lab), **leaving).may_go
    stop = lab.until(lambda: next(iter(desk.sync(running(launch.attempt, lab), **leaving).stops), None))
    assert (stop.attempt, stop.reason) == (launch.attempt, StopReason.DRAIN)
    lab.until(lambda: desk.sync(over(launch.attempt, lab), **leaving).may_go)
    job.refresh_from_db()
    assert (job.state, Node.objects.get(name="desk").reason) == (Job.State.QUEUED, LEAVING)
    desk.sync()
    assert Node.objects.get(name="desk").state == Node.State.READY


def test_a_machine_that_leaves_and_returns_stays_cordoned(desk: Played) -> None:
    node = Node.objects.get(name="desk")
    cordon(node, reason="its fan is loud", actor=None)
    assert desk.sync(leaving=timedelta(minutes=1)).may_go
    desk.sync()
    node.refresh_from_db()
    assert (node.state, node.reason) == (Node.State.CORDONED, "its fan is loud")
    assert Agent.objects.get(name="desk").left_at is None


def test_a_machine_that_is_back_outside_its_hours_is_heard_and_stays_out(desk: Played, lab: Lab) -> None:
    desk.sync(leaving=timedelta(minutes=1))
    now = lab.now
    hours = {"lent_from": (now + timedelta(hours=1)).time(), "lent_until": (now + timedelta(hours=2)).time()}
    Node.objects.filter(name="desk").update(**hours, lent_zone="UTC", given_back=True)
    assert not desk.sync().may_go
    assert Node.objects.get(name="desk").state != Node.State.READY
    assert Agent.objects.get(name="desk").left_at is None


@pytest.mark.parametrize(
    ("team", "spec", "trusted", "goes"),
    [
        ("trusted", {}, True, True),
        ("trusted", {}, False, False),
        ("any", {}, False, True),
        ("any", {"volunteers": "none"}, True, False),
        ("none", {"volunteers": "any"}, True, False),
        ("any", {"workdir": "/tmp"}, True, False),
        ("any", {"secrets": ["KEY_OF_ADA"]}, False, False),
        ("any", {"secrets": ["KEY_OF_ADA"]}, True, True),
    ],
)
def test_whether_a_job_goes_to_a_machine_that_joined(
    lab: Lab, team: str, spec: dict[str, Any], trusted: bool, goes: bool
) -> None:
    desk, ada = Played(lab, trusted=trusted), lab.user()
    Team.objects.update(volunteers=Volunteers(team))
    set_secret("KEY_OF_ADA", "long enough", team=None, actor=ada)
    lab.node("stays", "v100", gpus=1)
    Node.objects.filter(name="stays").update(state=Node.State.CORDONED, reason="kept away")
    desk.sync()
    job = lab.submit(**spec)
    for _ in range(3):
        desk.sync()
        lab.round()
    job.refresh_from_db()
    assert (job.state == Job.State.STARTING) == goes, job.reasons


@pytest.mark.parametrize(("now", "goes"), [("any", True), ("trusted", False), ("none", False)])
def test_a_team_that_allows_fewer_machines_keeps_its_queued_jobs_from_them(lab: Lab, now: str, goes: bool) -> None:
    desk = Played(lab, trusted=False)
    lab.node("stays", "v100", gpus=1)
    Node.objects.filter(name="stays").update(state=Node.State.CORDONED, reason="kept away")
    lab.user()
    Team.objects.update(volunteers=Volunteers.ANY)
    desk.sync()
    job = lab.submit()
    Team.objects.update(volunteers=Volunteers(now))
    for _ in range(3):
        desk.sync()
        lab.round()
    job.refresh_from_db()
    assert (job.state == Job.State.STARTING) == goes, job.reasons


def test_a_team_that_allows_fewer_machines_keeps_a_placed_job_from_them(desk: Played, lab: Lab) -> None:
    desk.sync()
    job = lab.submit(gpu_types=["k80"])
    attempt = lab.attempt(job, engine="desk")
    Team.objects.update(volunteers=Volunteers.NONE)
    launch = Launch(attempt.pk, job=str(job.pk), command="true", tasks=[])
    with pytest.raises(NodeFault, match="does not allow"):
        engines()["desk"].launch(launch)


def test_a_job_for_the_gpus_of_volunteers_alone_is_refused_with_the_reason(lab: Lab) -> None:
    Played(lab, trusted=False)
    lab.node("n1")
    lab.user()
    with pytest.raises(InvalidSpec, match="the job may not run there") as refusal:
        lab.submit(gpu_types=["k80"])
    assert [fault["code"] for fault in refusal.value.faults] == ["volunteers_only"]


def test_a_job_that_asks_for_more_machines_than_its_team_allows_is_told_so(lab: Lab) -> None:
    Played(lab, trusted=False)
    lab.node("n1")
    lab.user()
    with pytest.raises(InvalidSpec, match=r"asks for `any`, but its team [a-z]+ allows `trusted`"):
        lab.submit(gpu_types=["k80"], volunteers="any")


def test_a_copy_of_a_machine_is_refused_and_the_other_goes_on(desk: Played, lab: Lab) -> None:
    """Both have the same token and machine id. Which one goes on is chance; one does."""
    desk.sync()
    copied = desk.copy()
    desk.sync()
    copied.sync()  # as if the answer to the other had been lost
    copied.sync()
    answer = desk.client().post("/api/v1/agent/sync", encode(told_by(desk)), format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "forked_agent")
    copied.sync()


def test_an_old_copy_of_a_machine_is_refused_at_once(desk: Played) -> None:
    copied = desk.copy()
    for _ in range(3):
        desk.sync()
    assert copied.post("sync", encode(told_by(copied)), copied.token) == 409
    desk.sync()


def test_lost_answers_make_no_copy(desk: Played) -> None:
    for _ in range(20):
        lost = desk.mark
        desk.sync()
        desk.mark = lost
    desk.sync()
    desk.sync()


def test_agents_are_heard_by_a_service_that_went_back_to_a_backup(desk: Played, lab: Lab) -> None:
    """Their marks are those of answers that the database does not know."""
    desk.sync()
    backup = Agent.objects.filter(name="desk").values("heard", "answers").get()
    for _ in range(3):
        desk.sync()
    copied = desk.copy()
    Agent.objects.filter(name="desk").update(**backup)
    assert desk.post("sync", encode(told_by(desk)), desk.token) == 409
    expect_agents(lab.now)
    desk.sync()
    desk.sync()
    assert copied.post("sync", encode(told_by(copied)), copied.token) == 409, "copies are told apart as before"


def test_a_restore_waits_for_the_leases_that_were_granted_to_machines_that_are_heard(
    desk: Played, lab: Lab, settings: Settings
) -> None:
    settings.MOTLEY_AGENT_LEASE_S = 200
    desk.sync()
    settings.MOTLEY_AGENT_LEASE_S = 20
    heard_at = Agent.objects.get(name="desk").heard_at
    assert heard_at is not None
    assert leases_before(heard_at + timedelta(seconds=240)) == {"desk": 250.0}
    silent = leases_before(heard_at + timedelta(seconds=260))
    assert (silent, lease_to_outlast_s(silent)) == ({"desk": 0.0}, 0.0)
    assert lease_to_outlast_s({}) == 250.0, "another service may have heard it until now"
    expect_agents(lab.now)
    assert leases_before(heard_at + timedelta(days=1)) == {"desk": 25.0}, "it was heard after that backup, too"


@pytest.mark.parametrize("told", ["a mark that is longer than those of any release", "0123.long"])
def test_what_an_agent_shows_after_a_restore_is_not_stored(desk: Played, lab: Lab, told: str) -> None:
    """A volunteer's machine can send any text as its mark: no lease is read from it, and it need not fit the column."""
    desk.sync()
    expect_agents(lab.now)
    desk.mark = told
    desk.sync()
    agent = Agent.objects.get(name="desk")
    assert agent.heard == ANY_MARK
    assert granted_lease_s(agent) == settings.MOTLEY_AGENT_LEASE_S
    desk.sync()
    assert Agent.objects.get(name="desk").heard != ANY_MARK


def test_a_launch_that_was_given_after_the_backup_is_followed(desk: Played, lab: Lab) -> None:
    desk.sync()
    job = lab.submit(gpu_types=["k80"])
    lab.until(lambda: AgentAttempt.objects.exclude(launch="").exists())
    backup = AgentAttempt.objects.values("launch", "delivered_at", "report").get()
    (launch,) = desk.sync().launches
    desk.sync(running(launch.attempt, lab))
    AgentAttempt.objects.update(**backup)
    expect_agents(lab.now)
    desk.sync(over(launch.attempt, lab))
    lab.until(lambda: job.attempts.filter(state="ended").exists())
    assert job.attempts.get(number=1).exit_code == 143


def test_an_attempt_that_its_machine_does_not_name_any_more_is_lost(desk: Played, lab: Lab) -> None:
    """As one that has ended, and was forgotten there, since the backup to which the service went back."""
    job = lab.submit(gpu_types=["k80"])
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab))
    lab.running(job)
    desk.sync()
    lab.until(lambda: job.attempts.filter(state="ended").exists())
    assert job.attempts.get(number=1).outcome == "lost"


def test_an_agent_of_a_release_without_marks_is_heard(desk: Played) -> None:
    for _ in range(20):
        desk.sync()
        desk.mark = ""


def test_a_copy_that_joins_anew_is_heard_and_the_other_no_longer(desk: Played, lab: Lab) -> None:
    for _ in range(3):
        desk.sync()
    _, text = issue_join_token("desk", trusted=True, actor=None, now=lab.now)
    copied = desk.copy()
    assert copied.post("join", encode(JOINING), text) == 200
    copied.mark = ""
    copied.sync()
    copied.sync()
    assert desk.post("sync", encode(told_by(desk)), desk.token) == 409


def told_by(agent: Played) -> Sync:
    return Sync(VERSION, "machine", replace(DESK, name=agent.name), heard=agent.mark)


def test_what_runs_after_its_end_was_stored_is_stopped_before_it_is_forgotten() -> None:
    stored = {1: AgentState(launch=False, stop=None, stored=True)}
    running_on = answer_to({1: AttemptNews(AttemptReport(1, Phase.RUNNING))}, stored)
    assert ([stop.attempt for stop in running_on.stops], running_on.forget) == ([1], [])
    ended = answer_to({1: AttemptNews(AttemptReport(1, Phase.ENDED), handed_over=True)}, stored)
    assert (ended.stops, ended.forget) == ([], [1])
    assert answer_to({}, stored).forget == [1]


def test_what_the_service_does_not_know_is_stopped_and_forgotten() -> None:
    news = {
        1: AttemptNews(AttemptReport(1, Phase.RUNNING)),
        2: AttemptNews(AttemptReport(2, Phase.ENDED), handed_over=True),
    }
    answer = answer_to(news, {3: AgentState(launch=True, stop=None, stored=False)})
    assert ([stop.attempt for stop in answer.stops], answer.forget, answer.launches) == ([1], [2], [3])
