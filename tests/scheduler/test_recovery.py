"""The service goes on where it was: what a crash left between two writes is taken up, once."""

import shutil
from datetime import timedelta

import pytest

from connections_app import engine_registry as fleet
from engines.attempt_files import AttemptFolder
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempt
from jobs_app.lifecycle.commands import cancel_job, requeue_job
from jobs_app.models import Attempt, Job
from jobs_app.secrets import UsableSecrets
from scheduler_app.round.dispatch import LaunchInputs, dispatch, launch_command, launch_gpus_of
from scheduler_app.round.lease import acquire_lease
from scheduler_app.round.reconcile import observe
from scheduler_app.round.run_round import run_round
from tests.service_lab import UNTIL_LET_GO, Lab

State = Attempt.State
A_MOMENT = timedelta(seconds=0.5)


@pytest.fixture
def unsent(lab: Lab) -> Job:
    """A job of whose launch the engine was not told, because the service died just before."""
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    acquire_lease("lab", lab.now)
    run_round("lab", lab.now)
    Attempt.objects.update(state=State.LAUNCHING)
    return job


def test_a_launch_that_was_not_sent_is_sent(lab: Lab, unsent: Job) -> None:
    lab.running(unsent)
    assert unsent.attempts.count() == 1


def test_a_job_cancelled_before_its_launch_was_sent_never_runs(lab: Lab, unsent: Job) -> None:
    cancel_job(unsent, actor=None)
    lab.until_state(unsent, Job.State.CANCELLED)
    assert unsent.attempts.get().started_at is None


def test_a_job_requeued_before_its_launch_was_sent_has_lost_nothing(lab: Lab, unsent: Job) -> None:
    requeue_job(unsent, actor=None)
    lab.until(lambda: unsent.attempts.filter(number=2).exists())
    unsent.refresh_from_db()
    assert (unsent.losses, unsent.attempts.get(number=1).outcome) == (0, Attempt.Outcome.REQUEUED)


def test_an_attempt_that_was_launched_meanwhile_is_not_taken_for_gone(lab: Lab, unsent: Job) -> None:
    Attempt.objects.update(state=State.CLAIMED)
    seen_before = unsent.attempts.get()
    Attempt.objects.update(state=State.LAUNCHING)
    end_attempt(seen_before, AttemptEnd(lab.now, lost=True))
    assert unsent.attempts.get().gone_at is None


def test_a_launch_that_arrives_after_the_job_was_cancelled_begins_nothing(lab: Lab, unsent: Job) -> None:
    attempt = unsent.attempts.get()
    inputs = LaunchInputs(launch_gpus_of([attempt.pk])[attempt.pk], UsableSecrets.read([attempt.job]))
    late = launch_command(attempt, inputs)
    folder = AttemptFolder(lab.root / "attempts" / str(attempt.pk))
    cancel_job(unsent, actor=None)
    lab.until_state(unsent, Job.State.CANCELLED)
    fleet.engine_named("local").launch(late)
    lab.until(folder.exit.exists)
    assert not folder.started.exists()


def test_commands_that_are_sent_again_do_nothing_twice(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit('echo started >> "$MOTLEY_CHECKPOINT_DIR/starts"; ' + UNTIL_LET_GO)
    lab.running(job)
    Attempt.objects.update(state=State.LAUNCHING, launched_at=None)
    dispatch(lab.fence, lab.now)
    lab.running(job)
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert (lab.root / "jobs" / str(job.pk) / "checkpoints" / "starts").read_text() == "started\n"


def test_a_new_process_of_the_service_finds_running_jobs_again(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    fleet.engine_over.cache_clear()
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert job.attempt_count == 1


def test_looking_twice_changes_nothing(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    before = job.events.count()
    for _ in range(2):
        observe(lab.fence, lab.now)
    assert job.events.count() == before


def test_the_history_of_a_job_has_each_of_its_steps_once(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit("exit 1", retries=1)
    lab.until_state(job, Job.State.FAILED)
    kinds = list(job.events.order_by("pk").values_list("kind", flat=True))
    assert kinds == ["submitted", *["placed", "started", "requeued"], *["placed", "started", "finished"]]


def test_a_job_whose_supervisor_dies_runs_again(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    lab.end_everything()
    lab.until(lambda: job.attempts.filter(number=2, state=State.RUNNING).exists())
    assert job.attempts.get(number=1).outcome == Attempt.Outcome.LOST


def test_a_job_that_loses_its_supervisor_again_and_again_fails(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    for number in range(1, 5):
        lab.until(lambda n=number: job.attempts.filter(number=n, state=State.RUNNING).exists())  # type: ignore[misc]
        lab.end_everything()
    lab.until_state(job, Job.State.FAILED)
    assert job.message.startswith("lost 4 times")


def test_an_attempt_whose_files_are_gone_is_lost(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    lab.end_everything()
    shutil.rmtree(AttemptFolder(lab.root / "attempts" / str(job.attempts.get().pk)).path)
    lab.until(lambda: job.attempts.filter(number=2).exists())
    assert job.attempts.get(number=1).outcome == Attempt.Outcome.LOST


def test_a_job_that_asks_at_once_to_be_requeued_waits_longer_each_time(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit("exit 75")
    with lab.clock_stopped():
        lab.until(lambda: Job.objects.filter(pk=job.pk, requeues=3).exists())
        job.refresh_from_db()
        assert job.eligible_at is not None
        assert "may start again at" in job.message
        lab.ahead += job.eligible_at - lab.now - A_MOMENT
        attempts = job.attempts.count()
        lab.tick()
        assert job.attempts.count() == attempts
        lab.ahead += 2 * A_MOMENT
        lab.until(lambda: job.attempts.count() > attempts)


def test_a_pause_that_began_before_the_clock_was_set_back_is_over(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit()
    Job.objects.update(eligible_at=lab.now + timedelta(hours=1))
    lab.round()
    assert job.attempts.count() == 1
