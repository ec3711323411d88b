"""Recurring jobs: one run for each due time, whatever stops or doubles the scheduler."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from jobs_app.errors import Conflict
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Job, Notification, RecurringJob, RecurringRun, Team
from jobs_app.notifications.targets import add_target
from jobs_app.secrets import set_secret
from jobs_app.teams import retire_team
from operations.loops import engine_turn
from scheduler_app.recurring_jobs import submission
from scheduler_app.recurring_jobs.editing import (
    add_recurring_job,
    admitted_recurring_job,
    change_recurring_job,
    resume_recurring_job,
)
from scheduler_app.recurring_jobs.schedule import LATE
from scheduler_app.recurring_jobs.submission import admitted_run, run_now, submit_due_runs
from tests.service_lab import Lab

MIDNIGHT = datetime(2026, 5, 4, tzinfo=UTC)
THREE = MIDNIGHT + timedelta(hours=3)
SPEC = {"name": "nightly", "command": "true", "gpus": 1}
Outcome = RecurringRun.Outcome


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=4)
    return lab


def added(lab: Lab, *, at: datetime = MIDNIGHT, spec: Any = SPEC, **columns: Any) -> RecurringJob:
    """One of ada's, due at 03:00 UTC unless a schedule is given."""
    asked = {"schedule": "0 3 * * *", "spec": spec, **columns}
    recurring = admitted_recurring_job(asked, owner=lab.user(), now=at)
    add_recurring_job(recurring)
    return recurring


def outcomes() -> list[tuple[str, datetime]]:
    """Of all due times, the first first."""
    return [(run.outcome, run.due_at) for run in RecurringRun.objects.order_by("due_at")]


def test_a_run_now_is_by_the_spec_that_it_has_now(cluster: Lab) -> None:
    """It was admitted before the lock, and may have another spec and owner since."""
    read = added(cluster)
    run = admitted_run(read, MIDNIGHT)
    asked = {"spec": SPEC | {"command": "python fixed.py"}}
    change_recurring_job(RecurringJob.objects.get(), asked, actor=cluster.user(), now=MIDNIGHT)
    with pytest.raises(Conflict, match="Somebody changed it in the meantime"):
        run_now(read, run, actor=cluster.user(), now=MIDNIGHT)
    assert not Job.objects.exists()


def test_nothing_is_run_in_the_name_of_an_owner_who_has_linked_the_account_since_it_was_read(cluster: Lab) -> None:
    read = added(cluster)
    run = admitted_run(read, MIDNIGHT)
    RecurringJob.objects.update(paused_at=MIDNIGHT, paused_because=RecurringJob.OWNER_LINKED)
    with pytest.raises(Conflict, match="has linked the account"):
        run_now(read, run, actor=cluster.user(), now=MIDNIGHT)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("became", "why"),
    [
        ({"is_active": False}, "is deactivated"),
        ({"password": make_password(None)}, "The login of its owner, ada, has ended in the meantime"),
    ],
)
def test_a_run_with_secrets_whose_owner_has_changed_since_it_was_read_is_a_conflict(
    cluster: Lab, became: dict[str, Any], why: str
) -> None:
    """Whoever asks for the run may be somebody else, whose login has not ended."""
    set_secret("HF_TOKEN", "x", team=None, actor=cluster.user())
    read = added(cluster, spec=SPEC | {"secrets": ["HF_TOKEN"]})
    run = admitted_run(read, MIDNIGHT)
    User.objects.filter(pk=read.owner_id).update(**became)
    with pytest.raises(Conflict, match=why):
        run_now(read, run, actor=cluster.user("ben"), now=MIDNIGHT)
    assert not Job.objects.exists()


def test_a_spec_that_is_written_after_the_owner_has_linked_the_account_is_run_in_the_writers_name(cluster: Lab) -> None:
    """It is paused still; only a spec that somebody else may have prepared is withheld from whoever asks for a run."""
    recurring, ben = added(cluster), cluster.user("ben")
    RecurringJob.objects.update(paused_at=MIDNIGHT, paused_because=RecurringJob.OWNER_LINKED)
    change_recurring_job(recurring, {"schedule": "0 4 * * *"}, actor=ben, now=MIDNIGHT)
    assert RecurringJob.objects.get().paused_because == RecurringJob.OWNER_LINKED
    change_recurring_job(recurring, {"spec": SPEC | {"command": "env"}}, actor=ben, now=MIDNIGHT)
    recurring = RecurringJob.objects.get()
    assert (recurring.paused_at, recurring.paused_because) == (MIDNIGHT, RecurringJob.WRITTEN_ANEW)
    assert run_now(recurring, admitted_run(recurring, MIDNIGHT), actor=cluster.user(), now=MIDNIGHT).owner == ben
    resume_recurring_job(recurring, actor=cluster.user(), now=MIDNIGHT)
    assert RecurringJob.objects.get().owner == ben


def test_it_is_submitted_when_it_is_due_and_not_before(cluster: Lab) -> None:
    recurring = added(cluster)
    submit_due_runs(THREE - timedelta(seconds=1))
    assert not Job.objects.exists()
    for seconds in (0, 1, 60):
        submit_due_runs(THREE + timedelta(seconds=seconds))
    job = Job.objects.get()
    assert (job.name, job.owner, job.team.name, job.recurring) == ("nightly", cluster.user(), "vision", recurring)
    assert RecurringRun.objects.get().job_id == job.pk
    assert outcomes() == [(Outcome.SUBMITTED, THREE)]
    recurring.refresh_from_db()
    assert recurring.next_due_at == THREE + timedelta(days=1)


def test_the_loop_of_engines_submits_it(cluster: Lab) -> None:
    added(cluster, at=cluster.now - timedelta(minutes=1), schedule="* * * * *")
    RecurringJob.objects.update(next_due_at=cluster.now)
    assert engine_turn("one", cluster.now)
    assert Job.objects.get().name == "nightly"


def test_a_turn_without_a_due_one_costs_one_query(cluster: Lab) -> None:
    added(cluster)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        submit_due_runs(MIDNIGHT)
    assert len(queries) == 1


# -- exactly once ------------------------------------------------------------------------------------------------


def test_of_two_schedulers_that_have_read_the_same_one_submits(cluster: Lab) -> None:
    added(cluster, concurrency="allow")
    two = [RecurringJob.objects.select_related("team__budget", "owner").get() for _ in range(2)]
    for seen in two:
        submission._submit_due_run(seen, THREE)
    assert (Job.objects.count(), RecurringRun.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_of_schedulers_at_the_same_time_one_submits(cluster: Lab) -> None:
    added(cluster, concurrency="allow")

    def turn(_: int) -> None:
        try:
            submit_due_runs(THREE)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(turn, range(4)))
    assert (Job.objects.count(), RecurringRun.objects.count()) == (1, 1)


def test_what_fails_halfway_is_undone_and_done_by_the_next_turn(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    added(cluster)

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as broken:
        broken.setattr(submission, "_record", fail)
        with pytest.raises(OperationalError):
            submit_due_runs(THREE)
    assert not Job.objects.exists()
    submit_due_runs(THREE)
    assert (Job.objects.count(), outcomes()) == (1, [(Outcome.SUBMITTED, THREE)])


def test_a_due_time_that_comes_again_is_not_submitted_again(cluster: Lab) -> None:
    """As after a clock was set back and the schedule changed then."""
    recurring = added(cluster, concurrency="allow")
    submit_due_runs(THREE)
    RecurringJob.objects.filter(pk=recurring.pk).update(next_due_at=THREE)
    submit_due_runs(THREE)
    assert (Job.objects.count(), outcomes()) == (1, [(Outcome.SUBMITTED, THREE)])
    recurring.refresh_from_db()
    assert recurring.next_due_at == THREE + timedelta(days=1)


def test_one_that_breaks_is_paused_and_keeps_no_other_from_its_run(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = added(cluster, name="broken")
    added(cluster, name="whole")
    submit = submission._submit_due_run

    def fail_for_one(recurring: RecurringJob, now: datetime) -> None:
        if recurring.pk == broken.pk:
            raise RuntimeError("a defect")
        submit(recurring, now)

    monkeypatch.setattr(submission, "_submit_due_run", fail_for_one)
    submit_due_runs(THREE)
    broken.refresh_from_db()
    assert (Job.objects.count(), broken.paused_because) == (1, submission.BROKEN)
    assert "a defect" in caplog.text


def test_a_turn_submits_a_bounded_number(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MOST_PER_TURN", 2)
    for number in range(3):
        added(cluster, name=f"number {number}")
    counts = []
    for _ in range(3):
        submit_due_runs(THREE)
        counts.append(Job.objects.count())
    assert counts == [2, 3, 3]


# -- the run before ----------------------------------------------------------------------------------------------


def test_forbid_skips_a_due_time_while_the_run_before_is_unfinished(cluster: Lab) -> None:
    added(cluster, concurrency="forbid")
    for day in range(2):
        submit_due_runs(THREE + timedelta(days=day))
    job = Job.objects.get()
    skipped = RecurringRun.objects.get(outcome=Outcome.SKIPPED)
    assert skipped.message == f"the run before, {job.pk}, is queued"
    cancel_job(job, actor=None)
    submit_due_runs(THREE + timedelta(days=2))
    assert Job.objects.count() == 2


def test_replace_cancels_the_run_before_and_submits(cluster: Lab) -> None:
    added(cluster, concurrency="replace")
    for day in range(2):
        submit_due_runs(THREE + timedelta(days=day))
    after, before = Job.objects.order_by("-pk")
    assert (before.state, before.message) == (Job.State.CANCELLED, "replaced by the run of 2026-05-05 03:00 UTC")
    assert after.state == Job.State.QUEUED
    assert RecurringRun.objects.get(job_id=after.pk).message == f"cancelled the run before, {before.pk}"


def test_allow_submits_beside_the_run_before(cluster: Lab) -> None:
    added(cluster, concurrency="allow")
    for day in range(2):
        submit_due_runs(THREE + timedelta(days=day))
    assert Job.objects.queued().count() == 2


def test_all_members_of_an_array_are_of_the_run(cluster: Lab) -> None:
    recurring = added(cluster, spec=SPEC | {"array": "0-2"})
    submit_due_runs(THREE)
    assert recurring.jobs.count() == 3
    cancel_job(recurring.jobs.order_by("pk")[0], actor=None)
    submit_due_runs(THREE + timedelta(days=1))
    assert [outcome for outcome, _ in outcomes()] == [Outcome.SUBMITTED, Outcome.SKIPPED]


# -- after the service was down ----------------------------------------------------------------------------------


def test_skip_leaves_missed_due_times_out(cluster: Lab) -> None:
    added(cluster, missed="skip")
    submit_due_runs(THREE + timedelta(days=2, hours=1))
    run = RecurringRun.objects.get()
    assert (run.outcome, run.due_at) == (Outcome.MISSED, THREE + timedelta(days=2))
    assert run.message == "the service was down; 2 due times before"
    assert not Job.objects.exists()
    submit_due_runs(THREE + timedelta(days=3))
    assert Job.objects.count() == 1


def test_once_submits_one_run_for_all_missed_due_times(cluster: Lab) -> None:
    added(cluster, missed="once", concurrency="allow")
    for _ in range(2):
        submit_due_runs(THREE + timedelta(days=2, hours=1))
    assert Job.objects.count() == 1
    assert outcomes() == [(Outcome.SUBMITTED, THREE + timedelta(days=2))]
    assert RecurringRun.objects.get().message == "missed: 2 due times before"


def test_a_turn_that_is_a_little_late_misses_nothing(cluster: Lab) -> None:
    added(cluster, missed="skip")
    submit_due_runs(THREE + LATE)
    assert Job.objects.count() == 1


def test_a_month_of_minutes_is_caught_up_in_one_turn(cluster: Lab) -> None:
    recurring = added(cluster, schedule="* * * * *", missed="once")
    now = MIDNIGHT + timedelta(days=31, seconds=30)
    submit_due_runs(now)
    recurring.refresh_from_db()
    assert (Job.objects.count(), recurring.next_due_at) == (1, now + timedelta(seconds=30))
    assert RecurringRun.objects.get().due_at == now - timedelta(seconds=30)
    assert "more than 1,000 due times" in RecurringRun.objects.get().message


# -- refused, and paused -----------------------------------------------------------------------------------------


def notified(lab: Lab) -> None:
    add_target("webhook", "https://example.org/hook", ["run_refused"], team=None, actor=lab.user())


def test_a_run_that_is_refused_is_recorded_and_its_owner_notified_once_a_day(cluster: Lab) -> None:
    notified(cluster)
    recurring = added(cluster, schedule="0 3,4 * * *", spec=SPEC | {"gpus": 4})
    Team.objects.update(max_gpus=2)
    for hours in range(2):
        submit_due_runs(THREE + timedelta(hours=hours))
    assert [outcome for outcome, _ in outcomes()] == [Outcome.REFUSED, Outcome.REFUSED]
    assert RecurringRun.objects.latest("due_at").message.startswith("/spec/gpus: Team vision may use at most 2 GPUs")
    facts = Notification.objects.get(event="run_refused").facts["recurring_job"]
    assert (facts["name"], facts["owner"]) == ("nightly", "ada")
    recurring.refresh_from_db()
    assert recurring.paused_at is None


def leave(lab: Lab) -> None:
    lab.team().members.remove(lab.user("ada", "others"))


def deactivate(lab: Lab) -> None:
    user = lab.user()
    user.is_active = False
    user.save()


def retire(lab: Lab) -> None:
    retire_team(lab.team(), actor=None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (leave, "Its owner, ada, is no longer in the team vision."),
        (deactivate, "The account of its owner, ada, is deactivated."),
        (retire, "The team vision is retired."),
    ],
)
def test_without_its_owner_or_team_it_is_paused_with_the_reason(cluster: Lab, change: Any, why: str) -> None:
    recurring = added(cluster)
    change(cluster)
    submit_due_runs(THREE)
    recurring.refresh_from_db()
    assert (recurring.paused_at, recurring.paused_because) == (THREE, why)
    assert (outcomes(), Job.objects.count()) == ([(Outcome.REFUSED, THREE)], 0)


def test_a_login_of_the_owner_that_ends_while_a_run_is_submitted_leaves_it_to_the_next_turn(cluster: Lab) -> None:
    """The owner may have linked the account, and the run would have the secrets of another person."""
    set_secret("HF_TOKEN", "x", team=None, actor=cluster.user())
    added(cluster, spec=SPEC | {"secrets": ["HF_TOKEN"]})
    read = RecurringJob.objects.select_related("team__budget", "owner").get()
    User.objects.update(password=make_password(None))
    submission._submit_due_run(read, THREE)
    assert (Job.objects.count(), RecurringJob.objects.get().paused_at, outcomes()) == (0, None, [])
    submit_due_runs(THREE)
    assert (Job.objects.count(), outcomes()) == (1, [(Outcome.SUBMITTED, THREE)])


def test_whoever_resumes_one_whose_owner_is_gone_owns_it(cluster: Lab) -> None:
    recurring = added(cluster)
    deactivate(cluster)
    submit_due_runs(THREE)
    resume_recurring_job(recurring, actor=cluster.user("ben"), now=THREE)
    submit_due_runs(THREE + timedelta(days=1))
    assert Job.objects.get().owner.username == "ben"


def test_due_times_of_a_pause_are_not_made_up_for(cluster: Lab) -> None:
    recurring = added(cluster, missed="once")
    RecurringJob.objects.update(paused_at=MIDNIGHT)
    submit_due_runs(THREE)
    resume_recurring_job(recurring, actor=cluster.user(), now=THREE + timedelta(hours=1))
    submit_due_runs(THREE + timedelta(hours=1))
    assert not Job.objects.exists()


def test_whoever_writes_a_new_spec_owns_it_and_other_changes_do_not_matter(cluster: Lab) -> None:
    """A spec may name secrets of its owner: another member's command must not read them."""
    recurring, ben = added(cluster), cluster.user("ben")
    change_recurring_job(recurring, {"schedule": "0 4 * * *"}, actor=ben, now=MIDNIGHT)
    recurring.refresh_from_db()
    assert (recurring.owner.username, recurring.next_due_at) == ("ada", MIDNIGHT + timedelta(hours=4))
    change_recurring_job(recurring, {"spec": SPEC | {"command": "env"}}, actor=ben, now=MIDNIGHT)
    recurring.refresh_from_db()
    assert recurring.owner.username == "ben"
