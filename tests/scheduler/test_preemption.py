"""A job is stopped for another only if its GPUs are used; it gets a receipt, and goes on elsewhere or later."""

from itertools import pairwise

import pytest

from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Attempt, GpuClaim, Job, Reason
from scheduler_app.models import Round
from scheduler_app.round.replay import replay_round
from tests.service_lab import UNTIL_LET_GO, Lab

SLOW_TO_STOP = "trap 'while [ ! -e \"$MOTLEY_CHECKPOINT_DIR/go\" ]; do sleep 0.05; done; exit 75' TERM; sleep 1000"
"""Told to stop, it waits for the test; its processes are there all the while."""


@pytest.fixture
def victim(lab: Lab) -> Job:
    """A job that was preempted by one named rival, on a cluster of one GPU."""
    lab.node("n1", gpus=1)
    victim = lab.submit(UNTIL_LET_GO, name="victim")
    lab.running(victim)
    lab.submit(UNTIL_LET_GO, name="rival")
    lab.until(lambda: victim.attempts.exclude(ended_at=None).exists())
    return victim


@pytest.fixture
def crowded(lab: Lab) -> Lab:
    """Six jobs of different sizes and tastes that have shared two nodes of two types for six rounds."""
    lab.node("n1", "a100", gpus=2)
    lab.node("n2", "t4", gpus=2)
    for n in range(6):
        lab.submit(UNTIL_LET_GO, name=f"job-{n}", gpus=1 + n % 2, rates={"a100": 10 + 5 * n, "t4": 10})
    for _ in range(6):
        lab.round()
        lab.carried_out()
    return lab


def test_the_receipt_names_the_job_that_gets_the_gpus(lab: Lab, victim: Job) -> None:
    first = lab.attempts(victim)[0]
    assert (first.outcome, first.stop_reason, first.stop_note) == (
        Attempt.Outcome.PREEMPTED,
        Attempt.StopReason.PREEMPT,
        "made room for rival",
    )


def test_a_job_waits_for_gpus_only_while_somebody_is_leaving_them(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    victim = lab.submit(SLOW_TO_STOP, name="victim")
    lab.running(victim)
    rival = lab.submit(UNTIL_LET_GO, name="rival")
    lab.until(rival.attempts.exists)
    rival.refresh_from_db()
    assert (rival.reason, rival.message) == (
        Reason.AWAITING_RELEASE,
        "waiting for victim to release its GPUs",
    )
    lab.let_go(victim)
    lab.until(lambda: rival.attempts.exclude(state=Attempt.State.CLAIMED).exists())
    rival.refresh_from_db()
    assert rival.reason in ("", Reason.STARTING)


def test_the_receipt_says_what_work_was_lost(lab: Lab, victim: Job) -> None:
    first = lab.attempts(victim)[0]
    assert first.started_at is not None
    assert first.ended_at is not None
    assert first.work_lost_gpu_s == pytest.approx((first.ended_at - first.started_at).total_seconds())


def test_the_victim_goes_on_later(lab: Lab, victim: Job) -> None:
    lab.until(lambda: len(lab.attempts(victim)) == 2)
    lab.running(victim)


def test_jobs_that_take_turns_are_stopped_for_others_and_hold_their_gpus_alone(crowded: Lab) -> None:
    """And each of the rounds, solved again, gives the same plan."""
    who_is_stopped_makes_room()
    no_gpu_is_held_by_two()
    rounds_are_decided_again()


def who_is_stopped_makes_room() -> None:
    reasons = Attempt.StopReason
    stopped = Attempt.objects.filter(stop_reason__in=(reasons.PREEMPT, reasons.MOVE))
    assert stopped.exists()
    for attempt in stopped:
        taken = GpuClaim.objects.filter(gpu__claims__attempt=attempt, attempt__gt=attempt)
        assert taken.exists() or attempt.stop_reason == reasons.MOVE


def no_gpu_is_held_by_two() -> None:
    spans = GpuClaim.objects.exclude(held_from=None).order_by("gpu", "held_from")
    for before, after in pairwise(spans):
        if before.gpu_id == after.gpu_id:
            assert before.released_at is not None
            assert after.held_from is not None
            assert before.released_at <= after.held_from


def rounds_are_decided_again() -> None:
    numbers = list(Round.objects.values_list("number", flat=True))
    assert len(numbers) >= 6
    assert [number for number in numbers if not replay_round(number)[2]] == []


def test_a_job_that_may_not_be_preempted_is_not(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    firm = lab.submit(UNTIL_LET_GO, preemptible=False)
    lab.running(firm)
    lab.submit(name="rival", rates={"a100": 1000})
    for _ in range(4):
        lab.round()
    assert [attempt.state for attempt in lab.attempts(firm)] == [Attempt.State.RUNNING]


def test_a_job_that_began_just_now_is_not_preempted(lab: Lab) -> None:
    lab.policy(min_run_s=3600)
    lab.node("n1", gpus=1)
    young = lab.submit(UNTIL_LET_GO)
    lab.running(young)
    lab.submit(name="rival", rates={"a100": 1000})
    for _ in range(4):
        lab.round()
    assert [attempt.state for attempt in lab.attempts(young)] == [Attempt.State.RUNNING]


def test_rounds_that_events_cause_stop_no_job_within_half_a_round(lab: Lab) -> None:
    lab.policy(round_s=600)
    lab.node("n1", gpus=1)
    young = lab.submit(UNTIL_LET_GO)
    lab.running(young)
    lab.submit(name="rival", rates={"a100": 1000})
    before = Round.objects.count()
    lab.until(lambda: Round.objects.count() > before)
    lab.carried_out()
    assert [attempt.state for attempt in lab.attempts(young)] == [Attempt.State.RUNNING]
    lab.round()
    lab.until(lambda: lab.attempts(young)[0].outcome == Attempt.Outcome.PREEMPTED)


def test_a_gpu_is_not_handed_on_while_a_process_may_be_left(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    stubborn = lab.submit(SLOW_TO_STOP, name="stubborn")
    lab.running(stubborn)
    heir = lab.submit(name="heir")
    lab.until(heir.attempts.exists)
    for _ in range(5):
        lab.round()
    assert not lab.gpus_held(heir)


def test_a_gpu_is_handed_on_once_its_processes_are_gone(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    stubborn = lab.submit(SLOW_TO_STOP, name="stubborn")
    lab.running(stubborn)
    heir = lab.submit(name="heir")
    lab.until(heir.attempts.exists)
    lab.let_go(stubborn)
    lab.until_state(heir, Job.State.SUCCEEDED)
    gone, started = lab.attempts(stubborn)[0].gone_at, lab.attempts(heir)[0].started_at
    assert gone is not None
    assert started is not None
    assert gone <= started


@pytest.fixture
def moving(lab: Lab) -> Job:
    """A job that is told to move to a faster node, and has not stopped yet."""
    lab.node("n1", "t4", gpus=1)
    job = lab.submit(SLOW_TO_STOP, rates={"t4": 1, "a100": 100})
    lab.running(job)
    lab.node("n2", "a100", gpus=1)
    lab.until(lambda: job.attempts.filter(state=Attempt.State.STOPPING).exists())
    return job


def test_a_moved_job_is_not_at_two_places(lab: Lab, moving: Job) -> None:
    for _ in range(5):
        lab.round()
    assert [attempt.state for attempt in lab.attempts(moving)] == [Attempt.State.STOPPING, Attempt.State.CLAIMED]


def test_a_moved_job_goes_on_at_the_new_place(lab: Lab, moving: Job) -> None:
    lab.let_go(moving)
    lab.until(lambda: moving.attempts.filter(number=2, state=Attempt.State.RUNNING).exists())
    assert lab.attempts(moving)[1].nodes == ["n2"]


def test_cancelling_a_moving_job_frees_both_places(lab: Lab, moving: Job) -> None:
    cancel_job(moving, actor=None)
    lab.let_go(moving)
    lab.until_state(moving, Job.State.CANCELLED)
    lab.tick()
    assert not GpuClaim.objects.open().exists()


def test_a_moving_job_that_ends_well_does_not_run_again(lab: Lab) -> None:
    lab.node("n1", "t4", gpus=1)
    job = lab.submit(SLOW_TO_STOP.replace("exit 75", "exit 0"), rates={"t4": 1, "a100": 100})
    lab.running(job)
    lab.node("n2", "a100", gpus=1)
    lab.until(lambda: len(lab.attempts(job)) == 2)
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert lab.attempts(job)[1].launched_at is None
