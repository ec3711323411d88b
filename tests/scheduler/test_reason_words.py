"""Reasons in words: which jobs have the GPUs, until when, and why they come first; figures stand beside."""

import numpy as np
import pytest

from allocation.decision import Decision
from allocation.plan_round import plan_round
from allocation.policies.motley import motley
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.pending_reasons import PendingReason, ReasonCode, explain
from jobs_app.models import Job
from scheduler_app.round.holders import JobName, words_of_holders
from scheduler_app.round.reason_texts import reason_texts
from tests.allocation.allocation_cases import build_inventory
from tests.service_lab import Lab


@pytest.fixture
def full(lab: Lab) -> Lab:
    """Both GPUs are held, by a job of each team; `train` has a minute left."""
    lab.policy("motley", round_s=1)
    lab.node("n1", gpus=2)
    lab.team("language")
    lab.user("bob", "language")
    train = lab.submit(name="train", total_steps=60, rates={"a100": 1.0}, checkpoint={"restore_seconds": 600})
    other = lab.submit(owner=lab.user("bob"), name="secret", team="language")
    lab.recorded_as_running(train, other)
    return lab


def reasons(lab: Lab, job: Job) -> list[dict[str, str]]:
    lab.decide()
    job.refresh_from_db()
    assert job.state == Job.State.QUEUED
    return [one for one in job.reasons if one["code"] == "outbid"]


def test_a_waiting_job_is_told_who_has_the_gpus_and_for_how_long(full: Lab) -> None:
    [outbid] = reasons(full, full.submit(name="waits", gpus=2, rates={"a100": 1.0}, total_steps=1000))
    assert outbid["detail"].startswith("All 2 A100 go to ")
    assert "train (1 GPU, about 60 s left)" in outbid["detail"] or "train (1 GPU, about 1 min left)" in outbid["detail"]
    assert "a job of team language (1 GPU, its end is not known)" in outbid["detail"]
    assert "secret" not in outbid["detail"]


def test_figures_of_the_optimiser_stand_beside_the_words(full: Lab) -> None:
    [outbid] = reasons(full, full.submit(name="waits", gpus=2, rates={"a100": 1.0}, total_steps=1000))
    assert "to the objective, and their price is" in outbid["figures"]
    assert "objective" not in outbid["detail"]
    assert "price" not in outbid["detail"]


def round_of(**columns: list[float]) -> tuple[Problem, Decision, str]:
    """One GPU, held by the first of two jobs; the words for the second."""
    of_both = {"held": [0, -1], "remaining_steps": [100, 7200], "attained_gpu_s": [1, 1], "restart_s": [10, 10]}
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], **{**of_both, **columns})
    inventory = build_inventory([[1]], 2, holder=[0])
    plan = plan_round(problem, inventory, Quotas.none(2), motley, round_s=60)
    found = explain(
        problem,
        plan.decision,
        inventory,
        Quotas.none(2),
        assignment=plan.assignment,
        owner=plan.owner,
        round_s=60,
    )
    [reason] = [one for one in found[1] if one.holders]
    return problem, plan.decision, _words(problem, reason)


@pytest.mark.parametrize(
    ("needed", "left", "words"),
    [
        (8, 0, "none of the 8 that it needs is free yet"),
        (1, 0, "the one that it needs is not free yet"),
        (8, 1, "of the 8 that it needs 1 is kept for it, and no other job starts on it."),
        (8, 3, "of the 8 that it needs 3 are kept for it, and no other job starts on them."),
    ],
)
def test_the_next_to_start_is_told_how_many_of_its_gpus_are_kept(needed: int, left: int, words: str) -> None:
    snapshot = _Snapshot(Problem.of([[1.0], [1.0]], [[1]], [1]))
    reason = PendingReason(ReasonCode.AWAITING_RELEASE, {"gpu_type": 0, "needed": needed, "left": left})
    [told] = reason_texts(snapshot, {1: [reason]}, {})["b"]  # type: ignore[arg-type]
    assert words in told["detail"]


class _Snapshot:
    """What words are made from."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.types, self.jobs = problem, ("t4",), ("a", "b")
        self.inventory = build_inventory([[1]], 2)


def _words(problem, reason) -> str:  # type: ignore[no-untyped-def]
    names = {"a": JobName("first", 0, "vision")}
    return words_of_holders(reason, reason.holders, 1, _Snapshot(problem), names)  # type: ignore[arg-type]


def test_a_job_within_its_lease_is_said_not_to_be_stopped_yet() -> None:
    words = round_of(held_s=[200, 0], remaining_steps=[9000, 7200])[2]
    assert (
        words
        == "The only T4 goes to first (1 GPU, about 2 h left). It may not be stopped yet: in 50 s at the earliest."
    )


def test_what_a_job_beyond_its_lease_has_over_the_one_that_waits_is_told() -> None:
    words = round_of(held_s=[300, 0], remaining_steps=[1000, 7200])[2]
    assert words.endswith("It has less left to run and would lose time if it were stopped.")


def test_the_gang_for_which_gpus_are_kept_and_those_that_wait_for_it_are_told_so() -> None:
    rate = [[0, 1], [1, 0], [1, 0]]
    columns = {"remaining_steps": [100, 1000, 100], "age_s": [101, 10, 5], "held": [-1, 0, -1], "held_s": [0, 5, 0]}
    problem = Problem.of(rate, [[1, 2]], [2], attained_gpu_s=[0, 5, 0], restart_s=[2] * 3, **columns)
    inventory = build_inventory([[2]], 3, holder=[1, -1])
    plan = plan_round(problem, inventory, Quotas.none(3), motley, round_s=60)
    found = explain(
        problem, plan.decision, inventory, Quotas.none(3), assignment=plan.assignment, owner=plan.owner, round_s=60
    )
    assert found[0][0].code == ReasonCode.AWAITING_RELEASE
    assert found[0][0].numbers == {"gpu_type": 0, "needed": 2, "left": 1}
    assert (found[2][0].code, found[2][0].rival) == (ReasonCode.OUTBID, 0)
    assert found[2][0].numbers == {"gpu_type": 0, "needed": 1, "left": 1}
    assert np.array_equal(plan.assignment, [-1, 0, -1])
