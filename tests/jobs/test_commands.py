"""What people do to jobs: cancel, hold, release, requeue; and what jobs do to those that wait for them."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engines.attempt_files import AttemptFolder
from jobs_app.errors import Conflict, JobIsFinished, JobIsNotHeld
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job, requeue_job
from jobs_app.lifecycle.dependencies import settle_dependencies
from jobs_app.measurement.counters import totals
from jobs_app.models import Attempt, GpuClaim, Job, Metric, Reason
from tests.service_lab import UNTIL_LET_GO, Lab

State, Outcome = Job.State, Attempt.Outcome


def outcomes(lab: Lab, job: Job) -> list[str]:
    return [attempt.outcome for attempt in lab.attempts(job)]


def fresh(job: Job) -> Job:
    job.refresh_from_db()
    return job


@pytest.fixture
def running(lab: Lab) -> Job:
    """A job that runs until it is let go, on a cluster of two GPUs."""
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    return job


@pytest.fixture
def waiting_for_gpus(lab: Lab) -> Job:
    """A job whose GPU is still being released by another job."""
    lab.node("n1", gpus=1)
    slow = lab.submit(f"trap '' TERM; {UNTIL_LET_GO}", name="slow")
    lab.running(slow)
    job = lab.submit(UNTIL_LET_GO, name="next", weight=1)
    lab.until(lambda: job.attempts.filter(state=Attempt.State.CLAIMED).exists())
    return job


# -- cancel ------------------------------------------------------------------------------------------------------


def test_a_queued_job_is_cancelled_at_once(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit()
    cancel_job(job, actor=lab.user("bob"))
    assert (fresh(job).state, job.reason, job.message) == (State.CANCELLED, Reason.CANCELLED_BY_USER, "by bob")


def test_a_job_that_waits_for_its_gpus_is_cancelled_at_once(lab: Lab, waiting_for_gpus: Job) -> None:
    cancel_job(waiting_for_gpus, actor=None)
    assert fresh(waiting_for_gpus).state == State.CANCELLED


def test_a_running_job_is_cancelled_once_it_is_gone(lab: Lab, running: Job) -> None:
    cancel_job(running, actor=lab.user())
    assert fresh(running).state == State.STOPPING
    lab.until_state(running, State.CANCELLED)
    assert outcomes(lab, running) == [Outcome.CANCELLED]


def test_a_job_cancelled_while_it_is_launched_is_cancelled(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.tick()
    assert lab.attempts(job)[0].state == Attempt.State.LAUNCHING
    cancel_job(job, actor=None)
    lab.until_state(job, State.CANCELLED)


def test_cancelling_twice_is_as_good_as_once(lab: Lab, running: Job) -> None:
    cancel_job(running, actor=None)
    cancel_job(running, actor=None)
    lab.until_state(running, State.CANCELLED)


def test_a_cancel_overrides_a_requeue_that_is_under_way(lab: Lab, running: Job) -> None:
    requeue_job(running, actor=None)
    cancel_job(running, actor=None)
    lab.until_state(running, State.CANCELLED)


def test_a_finished_job_cannot_be_cancelled(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit(), State.SUCCEEDED)
    with pytest.raises(JobIsFinished, match="already succeeded"):
        cancel_job(job, actor=None)


def test_the_gpus_of_a_cancelled_job_are_free_again(lab: Lab, running: Job) -> None:
    cancel_job(running, actor=None)
    lab.until_state(running, State.CANCELLED)
    assert not GpuClaim.objects.open().exists()


# -- hold, release, requeue --------------------------------------------------------------------------------------


def test_a_held_job_does_not_start(lab: Lab) -> None:
    lab.node("n1")
    held = lab.submit()
    hold_job(held, actor=lab.user())
    lab.until_state(lab.submit(), State.SUCCEEDED)
    assert (fresh(held).state, held.reason) == (State.QUEUED, Reason.HELD)
    assert held.message == "Held by ada; release it with `motley release job`, or on its page."


def test_a_released_job_starts(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit()
    hold_job(job, actor=None)
    release_job(job, actor=None)
    lab.until_state(job, State.SUCCEEDED)


def test_a_running_job_that_is_held_goes_back_to_the_queue_and_stays_there(lab: Lab, running: Job) -> None:
    hold_job(running, actor=lab.user("bob"))
    lab.until_state(running, State.QUEUED)
    assert fresh(running).message.startswith("Held by bob")
    assert "release it with `motley release job`" in running.message
    lab.round()
    assert (fresh(running).held, running.state, outcomes(lab, running)) == (True, State.QUEUED, [Outcome.REQUEUED])


def test_a_job_held_while_it_waits_for_its_gpus_goes_back_to_the_queue(lab: Lab, waiting_for_gpus: Job) -> None:
    hold_job(waiting_for_gpus, actor=None)
    assert (fresh(waiting_for_gpus).state, waiting_for_gpus.held) == (State.QUEUED, True)


def test_a_job_released_before_it_stopped_is_not_held_afterwards(lab: Lab, running: Job) -> None:
    hold_job(running, actor=None)
    release_job(running, actor=None)
    lab.until(lambda: len(lab.attempts(running)) == 2)
    lab.running(running)


def test_a_job_that_is_not_held_cannot_be_released(lab: Lab) -> None:
    lab.node("n1")
    with pytest.raises(JobIsNotHeld):
        release_job(lab.submit(), actor=None)


def test_a_finished_job_cannot_be_held(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit(), State.SUCCEEDED)
    with pytest.raises(JobIsFinished):
        hold_job(job, actor=None)


def test_a_requeued_job_runs_again(lab: Lab, running: Job) -> None:
    requeue_job(running, actor=lab.user())
    lab.until(lambda: len(lab.attempts(running)) == 2)
    lab.running(running)
    assert outcomes(lab, running) == [Outcome.REQUEUED, ""]


def test_a_queued_job_cannot_be_requeued(lab: Lab) -> None:
    lab.node("n1")
    with pytest.raises(Conflict):
        requeue_job(lab.submit(), actor=None)


# -- jobs that wait for jobs -------------------------------------------------------------------------------------


def test_a_child_starts_only_after_its_parent_succeeded(lab: Lab, running: Job) -> None:
    child = lab.submit("true", name="child", after=[{"job": str(running.pk)}])
    lab.round()
    assert (fresh(child).state, child.reason) == (State.QUEUED, Reason.DEPENDENCY)
    lab.let_go(running)
    lab.until_state(child, State.SUCCEEDED)


def test_a_failed_parent_cancels_its_child_with_the_reason(lab: Lab) -> None:
    lab.node("n1")
    child = lab.submit(after=[{"job": str(lab.submit("false", name="parent").pk)}])
    lab.until_state(child, State.CANCELLED)
    assert (child.reason, child.message) == (Reason.DEPENDENCY_FAILED, "parent failed")


def test_a_failed_grandparent_cancels_too(lab: Lab) -> None:
    lab.node("n1")
    child = lab.submit(after=[{"job": str(lab.submit("false").pk)}])
    lab.until_state(lab.submit(after=[{"job": str(child.pk)}]), State.CANCELLED)


def test_the_children_and_grandchildren_of_a_failed_job_are_cancelled_together(
    lab: Lab, django_assert_max_num_queries: Any
) -> None:
    lab.node("n1")
    parent = lab.submit("false", name="parent")
    children = [lab.submit(after=[{"job": str(parent.pk)}]) for _ in range(30)]
    grandchild = lab.submit(after=[{"job": str(children[0].pk)}])
    Job.objects.filter(pk=parent.pk).update(state=State.FAILED, finished_at=timezone.now())
    with django_assert_max_num_queries(25):
        settle_dependencies()
    assert {fresh(job).state for job in (*children, grandchild)} == {State.CANCELLED}
    assert (children[0].message, grandchild.message) == ("parent failed", f"{children[0].name} was cancelled")
    assert [event.message for event in children[0].events.all()][-1].endswith(": parent failed")
    assert totals()[Metric.JOBS_FINISHED, State.CANCELLED] == 31


def test_a_child_that_waits_for_the_end_runs_after_a_failure(lab: Lab) -> None:
    lab.node("n1")
    parent = lab.submit("false")
    lab.until_state(lab.submit(after=[{"job": str(parent.pk), "on": "end"}]), State.SUCCEEDED)


# -- ends that are not the end -----------------------------------------------------------------------------------


def test_a_failing_job_is_tried_again_as_often_as_it_said(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit("exit 3", retries=2), State.FAILED)
    assert outcomes(lab, job) == [Outcome.FAILED] * 3
    assert (job.exit_code, job.message) == (3, "exit code 3; all 2 retries are used")


def test_a_later_attempt_knows_that_it_resumes(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit('test "$MOTLEY_RESUME" = 1 || exit 75; echo "attempt $MOTLEY_ATTEMPT"')
    lab.until_state(job, State.SUCCEEDED)
    assert lab.output(job) == "attempt 2\n"


def test_exit_75_costs_no_retry(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit('test "$MOTLEY_RESUME" = 1 || exit 75'), State.SUCCEEDED)
    assert (outcomes(lab, job), job.failures, job.requeues) == ([Outcome.REQUEUED, Outcome.SUCCEEDED], 0, 1)


def test_the_time_limit_counts_all_attempts_together(lab: Lab) -> None:
    lab.node("n1")
    limited = lab.submit(UNTIL_LET_GO, time_limit="1h")
    lab.running(limited)
    Job.objects.filter(pk=limited.pk).update(ran_s=3599)  # in earlier attempts
    lab.until_state(limited, State.TIMED_OUT)
    assert outcomes(lab, limited) == [Outcome.TIMED_OUT]


def test_a_job_is_stopped_when_no_session_was_in_use_for_its_idle_limit(lab: Lab) -> None:
    lab.node("n1")
    notebook = lab.submit(UNTIL_LET_GO, idle_limit="1h")
    lab.running(notebook)
    long_ago, lately = lab.now - timedelta(hours=2), lab.now - timedelta(minutes=50)
    Attempt.objects.filter(job=notebook).update(started_at=long_ago, session_at=lately)
    _began_earlier(lab, notebook, seconds=7200)
    lab.tick()
    notebook.refresh_from_db()
    assert notebook.state == State.RUNNING
    lab.ahead += timedelta(minutes=11)
    lab.until_state(notebook, State.TIMED_OUT)
    assert "no session was in use" in lab.attempts(notebook)[0].stop_note


def test_a_clock_that_is_set_forward_makes_no_job_idle(lab: Lab) -> None:
    lab.node("n1")
    notebook = lab.submit(UNTIL_LET_GO, idle_limit="1h")
    lab.running(notebook)
    lab.ahead += timedelta(hours=2)
    lab.round()
    notebook.refresh_from_db()
    assert notebook.state == State.RUNNING


def _began_earlier(lab: Lab, job: Job, *, seconds: float) -> None:
    """The engine's own clock says that the job's attempt began so much earlier."""
    started = AttemptFolder(lab.root / "attempts" / str(lab.attempts(job)[-1].pk)).started
    told = json.loads(started.read_text())
    started.write_text(json.dumps(told | {"boot_s": told["boot_s"] - seconds}))


def test_the_running_time_of_ended_attempts_is_added_up(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit('test "$MOTLEY_RESUME" = 1 || exit 75'), State.SUCCEEDED)
    assert job.ran_s == pytest.approx(sum(attempt.ran_s(lab.now) for attempt in lab.attempts(job)), abs=1)


def test_a_job_that_finishes_during_its_grace_has_succeeded(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit("trap 'exit 0' TERM; touch ready; while :; do sleep 0.05; done")
    lab.running(job)
    lab.until((lab.root / "jobs" / str(job.pk) / "work" / "ready").exists)
    requeue_job(job, actor=None)
    lab.until_state(job, State.SUCCEEDED)


def test_an_array_runs_so_many_at_a_time(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    first = lab.submit(UNTIL_LET_GO, array={"start": 0, "end": 2, "at_a_time": 2})
    members = list(Job.objects.filter(array=first.array).order_by("array_index"))
    lab.running(*members[:2])
    lab.round()
    assert fresh(members[2]).state == State.QUEUED
    assert members[2].reasons[0]["numbers"] == {"limit": 2}
    lab.let_go(members[0])
    lab.running(members[2])


def test_a_member_of_an_array_knows_its_index(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit('echo "$MOTLEY_ARRAY_INDEX"', array={"start": 7, "end": 7})
    assert lab.output(lab.until_state(job, State.SUCCEEDED)) == "7\n"


def test_a_command_that_cannot_be_started_fails_with_words(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit(["no-such-program"]), State.FAILED)
    assert "no-such-program" in job.message
