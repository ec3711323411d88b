"""When rounds happen, what they record, and that a failed one harms no job."""

from dataclasses import replace
from datetime import timedelta
from html import unescape
from io import BytesIO
from math import inf

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from allocation.decision import Decision, Status
from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.problem import Problem
from allocation.solvers.linear_program import maximize
from cluster_app.models import GpuType, Node
from cluster_app.services import cordon
from jobs_app.lifecycle.attempt_endings import AttemptEnd, AttemptIsNotLive, end_attempt
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job
from jobs_app.models import Attempt, Job, Throughput
from scheduler_app.errors import NotReplayable
from scheduler_app.models import PolicySetting, Round
from scheduler_app.policy.settings import choose_policy
from scheduler_app.round.archive import archive_of, pack
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.inputs import TypeRow, reading
from scheduler_app.round.inputs import jobs as jobs_of_round
from scheduler_app.round.lease import acquire_lease, open_round
from scheduler_app.round.replay import replay_round
from scheduler_app.round.run_round import read_for_round, take_snapshot
from scheduler_app.round.snapshot import build_snapshot
from scheduler_app.round.tick import round_is_due
from tests.query_plan import plan_of
from tests.scheduler.decided_round import Decided
from tests.service_lab import UNTIL_LET_GO, Lab


def broken(problem: Problem) -> Decision:
    raise ZeroDivisionError("the policy has a fault")


@pytest.fixture
def broken_policy(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that fails; there is a node for jobs."""
    lab.node("n1")
    monkeypatch.setitem(POLICIES, "broken", broken)


@pytest.fixture
def failed_round(lab: Lab, broken_policy: None) -> None:
    """A job was running before the policy was chosen; nothing of it is carried out."""
    lab.recorded_as_running(lab.submit())
    lab.policy("broken")
    lab.decide()


def test_a_failed_policy_is_recorded_with_its_error(failed_round: None) -> None:
    failed = Round.objects.latest("number")
    assert (failed.result, failed.message) == (Round.Result.FAILED, "ZeroDivisionError: the policy has a fault")


# -- a policy whose solver fails -----------------------------------------------------------------------------------


def infeasible(problem: Problem) -> Decision:
    return Decision.of_shares(maximize([1], [[1]], [-1]).x, prices=[0], objective=0)


@pytest.fixture
def fallen_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Round:
    """A round on two jobs for one GPU, of a policy that asks the solver for what cannot be."""
    lab.node("n1", gpus=1)
    monkeypatch.setitem(POLICIES, "infeasible", infeasible)
    lab.policy("infeasible")
    lab.submit(UNTIL_LET_GO, name="first")
    lab.submit(UNTIL_LET_GO, name="second")
    lab.tick()
    return Round.objects.get()


def test_a_round_whose_solver_failed_is_committed_as_a_queue(lab: Lab, fallen_back: Round) -> None:
    lab.running(Job.objects.get(name="first"))
    assert (fallen_back.result, fallen_back.status) == (Round.Result.COMMITTED, "fallback")


def test_it_keeps_what_the_solver_said(fallen_back: Round) -> None:
    assert "infeasible" in fallen_back.message
    assert fallen_back.message.endswith(". Jobs are served in the order of submission instead.")


def out_of_time(problem: Problem) -> Decision:
    return replace(fifo(problem), status=Status.FALLBACK, bound=1.5)


def test_a_policy_with_a_stand_in_of_its_own_says_how_far_off_it_may_be(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.node("n1")
    monkeypatch.setitem(POLICIES, "out_of_time", out_of_time)
    lab.policy("out_of_time")
    lab.submit(UNTIL_LET_GO)
    lab.tick()
    assert Round.objects.get().fell_back
    assert "is within 50.0% of the optimum" in Round.objects.get().message


def test_it_is_replayed_as_it_was(fallen_back: Round) -> None:
    archived, _, equal = replay_round(fallen_back.number)
    assert (archived.plan.decision.message, equal) == (fallen_back.message, True)


def test_a_waiting_job_has_the_reasons_of_the_queue(fallen_back: Round) -> None:
    assert Job.objects.get(name="second").reasons[0]["code"] == "insufficient_gpus"


def test_the_home_page_says_so_and_what_helps(lab: Lab, fallen_back: Round, plain_static: None, client: Client) -> None:
    client.force_login(lab.user("root", staff=True))
    shown = client.get("/").content.decode()
    assert "The solver failed and a fallback decided the last round." in shown
    assert fallen_back.message in unescape(shown)
    assert reverse("policy", args=["infeasible"]) in shown


def test_probes_and_metrics_say_so(lab: Lab, fallen_back: Round, client: Client) -> None:
    health = client.get("/healthz/scheduler")
    assert (health.status_code, health.json()["last_round_fell_back"]) == (200, True)
    assert health.json()["solver_said"] == fallen_back.message
    assert 'motley_rounds_total{result="fallback"} 1.0' in client.get("/metrics").content.decode()


def test_once_the_solver_answers_again_there_is_no_alarm(
    lab: Lab, fallen_back: Round, plain_static: None, client: Client
) -> None:
    lab.policy()
    lab.round()
    client.force_login(lab.user())
    assert "The solver failed" not in client.get("/").content.decode()


# -- a policy whose time is over -----------------------------------------------------------------------------------


def as_far_as_it_came(problem: Problem) -> Decision:
    """With a time limit it serves the first job; with none it would serve no job."""
    if problem.solve_limit_s == inf:
        return Decision.of_assignment([-1], prices=[0])
    return replace(fifo(problem), status=Status.LIMIT, objective=8, bound=8 + problem.solve_limit_s)


@pytest.fixture
def hurried(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Round:
    """A round that ran into its limit, a quarter of its two seconds."""
    lab.node("n1")
    monkeypatch.setitem(POLICIES, "hurried", as_far_as_it_came)
    choose_policy(PolicySetting(policy="hurried", round_length_s=2, solve_limit_part=0.25), actor=None)
    lab.submit(UNTIL_LET_GO)
    lab.tick()
    return Round.objects.get()


def test_a_round_that_runs_into_its_limit_says_so_and_how_far_off_it_may_be(hurried: Round) -> None:
    assert (hurried.result, hurried.status, hurried.gap) == (Round.Result.COMMITTED, "limit", 0.5 / 8)
    assert hurried.message == "The time limit was reached; the best answer, used here, is within 6.25% of the optimum."


def test_a_policy_that_says_itself_what_the_limit_cost_is_quoted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("n1")
    said = "The oldest 10 of 60 jobs were matched."
    of_rule = {"status": Status.LIMIT, "message": said}
    monkeypatch.setitem(POLICIES, "hurried", lambda problem: replace(fifo(problem), **of_rule))
    lab.policy("hurried")
    lab.submit(UNTIL_LET_GO)
    lab.tick()
    assert Round.objects.get().message == said


def test_its_page_the_list_rest_and_the_metrics_say_so(
    lab: Lab, hurried: Round, plain_static: None, client: Client
) -> None:
    client.force_login(lab.user())
    assert hurried.message in client.get(reverse("round", args=[hurried.number])).content.decode()
    assert "time limit" in client.get(reverse("rounds")).content.decode()
    assert client.get(f"/api/v1/rounds/{hurried.number}").json()["status"] == "limit"
    assert 'motley_rounds_total{result="limit"} 1.0' in client.get("/metrics").content.decode()


def test_replayed_it_has_as_long_as_it_had(hurried: Round) -> None:
    assert replay_round(hurried.number)[2]


def test_a_round_that_did_not_run_into_its_limit_has_none_when_it_is_replayed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busier machine would give another answer."""
    lab.node("n1")
    seen: list[float] = []
    monkeypatch.setitem(POLICIES, "watched", lambda problem: seen.append(problem.solve_limit_s) or fifo(problem))
    lab.policy("watched")
    lab.submit(UNTIL_LET_GO)
    lab.tick()
    assert replay_round(Round.objects.get().number)[2]
    assert seen == [0.5, inf]


# -- what happens while rounds fail --------------------------------------------------------------------------------


def test_running_jobs_go_on_while_rounds_fail_and_rounds_succeed_again_after_another_policy_is_chosen(
    lab: Lab, broken_policy: None
) -> None:
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    lab.policy("broken")
    lab.round()
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    lab.policy()
    lab.until_state(lab.submit(), Job.State.SUCCEEDED)


def test_a_round_is_replayed_that_was_kept_before_a_column_existed(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    lab.submit(UNTIL_LET_GO, name="first")
    lab.tick()
    record = Round.objects.get()
    with np.load(BytesIO(bytes(record.archive or b""))) as file:
        kept = {name: file[name] for name in file.files if name != "problem.most_replicas"}
    older = BytesIO()
    np.savez_compressed(older, **kept)
    Round.objects.update(archive=older.getvalue())
    assert replay_round(record.number)[2]


def test_a_round_of_a_parameter_that_is_gone_is_not_replayed_and_says_which(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.submit(UNTIL_LET_GO)
    lab.tick()
    record = Round.objects.get()
    archived = archive_of(record)
    assert archived is not None
    older = pack("motley", {"power": 1.25}, archived.snapshot, archived.plan)
    Round.objects.update(archive=older, policy="motley", started_at=record.started_at - timedelta(seconds=1))
    with pytest.raises(NotReplayable, match="power"):
        replay_round(record.number)


def test_a_failed_round_cannot_be_replayed(failed_round: None) -> None:
    with pytest.raises(NotReplayable):
        replay_round(Round.objects.latest("number").number)


def test_a_policy_that_is_gone_fails_the_round_and_says_so(lab: Lab) -> None:
    PolicySetting.objects.update(policy="gone")
    lab.tick()
    failed = Round.objects.get()
    assert failed.result == Round.Result.FAILED
    assert "There is no policy 'gone' any more; choose another." in failed.message


# -- when a round is due -----------------------------------------------------------------------------------------


def test_a_round_is_due_after_its_length(lab: Lab) -> None:
    lab.policy(round_s=60)
    with lab.clock_stopped():
        lab.tick()
        lab.ahead += timedelta(seconds=59)
        assert not round_is_due(lab.now)
        lab.ahead += timedelta(seconds=2)
        assert round_is_due(lab.now)


def test_news_is_answered_sooner(lab: Lab) -> None:
    lab.policy(round_s=60)
    lab.node("n1")
    lab.tick()
    lab.submit()
    lab.ahead += timedelta(seconds=2)
    assert round_is_due(lab.now)


def test_a_burst_of_news_is_one_round(lab: Lab) -> None:
    lab.policy(round_s=60)
    lab.node("n1")
    lab.tick()
    lab.submit()
    assert not round_is_due(Round.objects.get().started_at + timedelta(milliseconds=900))


def test_what_the_round_did_itself_is_no_news(lab: Lab) -> None:
    lab.policy(round_s=60)
    lab.node("n1")
    lab.running(lab.submit(UNTIL_LET_GO))
    lab.ahead += timedelta(seconds=2)
    assert not round_is_due(lab.now)


# -- what a round may not do -------------------------------------------------------------------------------------


@pytest.fixture
def queued(lab: Lab) -> Job:
    """A job that waits, on a cluster with room for it."""
    lab.node("n1")
    return lab.submit()


def decided(lab: Lab) -> Decided:
    """The next round, up to its commit."""
    assert acquire_lease("lab", lab.now)
    return Decided.now(lab, "lab", open_round("lab", lab.now))


def test_a_job_cancelled_meanwhile_does_not_start(lab: Lab, queued: Job) -> None:
    round_ = decided(lab)
    cancel_job(queued, actor=None)
    round_.commit(lab)
    assert not Attempt.objects.exists()


def test_a_job_held_meanwhile_does_not_start(lab: Lab, queued: Job) -> None:
    round_ = decided(lab)
    hold_job(queued, actor=None)
    round_.commit(lab)
    assert not Attempt.objects.exists()


def test_nothing_starts_on_a_node_cordoned_meanwhile(lab: Lab, queued: Job) -> None:
    round_ = decided(lab)
    cordon(Node.objects.get(), reason="repair", actor=None)
    round_.commit(lab)
    assert not Attempt.objects.exists()


def test_nothing_is_launched_on_a_node_cordoned_after_the_commit(lab: Lab, queued: Job) -> None:
    decided(lab).commit(lab)
    assert Attempt.objects.get().state == Attempt.State.CLAIMED
    cordon(Node.objects.get(), reason="repair", actor=None)
    dispatch(lab.fence, lab.now)
    attempt = Attempt.objects.get()
    assert (attempt.state, attempt.launched_at) == (Attempt.State.ENDED, None)
    assert "n1: repair" in attempt.stop_note
    queued.refresh_from_db()
    assert queued.state == Job.State.QUEUED
    assert queued.failures == 0


def test_launching_many_attempts_takes_as_many_queries_as_launching_few(lab: Lab) -> None:
    lab.node("n1", gpus=8)
    counts = []
    for jobs in (1, 5):
        for _ in range(jobs):
            lab.submit(UNTIL_LET_GO)
        lab.ahead += timedelta(seconds=1)
        decided(lab).commit(lab)
        with CaptureQueriesContext(connection) as asked:
            dispatch(lab.fence, lab.now)
        assert Attempt.objects.exclude(launched_at=None).count() == Attempt.objects.count()
        counts.append(len(asked))
    assert Attempt.objects.count() == 6
    assert counts[1] <= counts[0]


def test_no_job_is_preempted_for_one_that_was_cancelled_meanwhile(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    victim, rival = lab.submit(UNTIL_LET_GO, name="victim"), lab.submit(name="rival")
    hold_job(rival, actor=None)
    lab.running(victim)
    release_job(rival, actor=None)
    lab.ahead += timedelta(seconds=1)
    round_ = decided(lab)
    assert round_.starts(rival)
    cancel_job(rival, actor=None)
    round_.commit(lab)
    assert Attempt.objects.get().state == Attempt.State.RUNNING


def test_an_attempt_ends_once(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    attempt = lab.attempts(job)[0]
    with pytest.raises(AttemptIsNotLive):
        end_attempt(attempt, AttemptEnd(lab.now, exit_code=1, gone=True))


def test_jobs_that_came_after_a_job_had_run_do_not_lengthen_what_its_work_takes_alone(lab: Lab) -> None:
    """Five hours of work a hundred hours ago, beside one other; ten jobs came since."""
    lab.node("n1", gpus=8)
    gang, beside = (lab.submit(gpus=8, total_steps=36_000, rates={"a100": {"8": 1.0}}) for _ in range(2))
    began = lab.now - timedelta(hours=100)
    ended = {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.PREEMPTED, "gone_at": lab.now}
    lab.attempt(gang, gpu_count=8, started_at=began, ended_at=began + timedelta(hours=5), **ended)
    Job.objects.filter(pk__in=[gang.pk, beside.pk]).update(created_at=began)
    Job.objects.filter(pk=gang.pk).update(step=18_000, attempt_count=1)
    for _ in range(10):
        lab.submit()
    snapshot = take_snapshot(lab.now, PolicySetting.objects.current())[0]
    isolated_s = dict(zip(snapshot.jobs, snapshot.problem.isolated_s.tolist(), strict=True))
    assert isolated_s[str(gang.pk)] == pytest.approx(2 * 5 * 3600)
    assert isolated_s[str(beside.pk)] == 0


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL scans tables that are as small as here")
def test_turns_and_rounds_read_no_table_that_grows_from_end_to_end(lab: Lab) -> None:
    """Jobs and attempts of the past are millions; those that go on are found by indexes that hold them alone."""
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.submit(after=[{"job": str(job.pk)}])
    lab.running(job)
    with CaptureQueriesContext(connection) as asked:
        lab.tick()
        lab.round()
        reading._checkpoint_s()
        jobs_of_round._with_bound_ones([])
    lab.let_go(job)
    grows = ("SCAN jobs_app_attempt", "SCAN jobs_app_job")
    reads = {query["sql"] for query in asked if query["sql"].startswith(("SELECT", "UPDATE", "DELETE"))}
    scanned = {row: sql for sql in reads for row in plan_of(sql) if row.startswith(grows)}
    assert scanned.keys() <= {
        f"SCAN jobs_app_attempt USING INDEX {name}" for name in ("attempt_live", "attempt_ungone")
    }


def test_a_node_and_the_rates_of_a_type_that_come_while_a_round_is_read_are_for_the_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.node("n1")
    job = lab.submit(workload="w")
    nodes, types = reading._nodes(), [TypeRow(*GpuType.objects.values_list(*TypeRow._fields).get())]
    lab.node("n2", "h100")
    kind, rate = GpuType.objects.get(name="h100"), {"workload": "w", "steps_per_second": 1.0, "reports": 5}
    for gpus in (1, 2):
        Throughput.objects.create(team=job.team, gpu_type=kind, gpus=gpus, nodes=1, **rate)
    monkeypatch.setattr(reading, "_nodes", lambda: nodes)
    rows, timing = read_for_round(lab.now, PolicySetting.objects.current())
    snapshot, _ = build_snapshot(replace(rows, types=types), timing)
    assert (snapshot.types, snapshot.nodes, len(snapshot.gpus)) == (("a100",), ("n1",), 2)
    assert snapshot.jobs == (str(job.pk),)
