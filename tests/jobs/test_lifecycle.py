"""What becomes of a job when an attempt ends, as a table."""

from typing import Any

import pytest

from jobs_app.lifecycle.attempt_outcome import (
    LONGEST_PAUSE_S,
    MOST_LOSSES,
    MOST_REQUEUES,
    NODE_PAUSE_S,
    QUICK_S,
    Ending,
    judge,
)
from jobs_app.models import Attempt, Job, Reason

Outcome, State, Stop = Attempt.Outcome, Job.State, Attempt.StopReason

TABLE: list[tuple[str, dict[str, Any], tuple[Any, Any, Any]]] = [
    ("exit 0", {"exit_code": 0}, (Outcome.SUCCEEDED, State.SUCCEEDED, None)),
    ("exit 1", {"exit_code": 1}, (Outcome.FAILED, State.FAILED, Reason.EXIT_CODE)),
    ("exit 1, retries left", {"exit_code": 1, "retries": 1}, (Outcome.FAILED, State.QUEUED, Reason.RETRYING)),
    (
        "exit 1, retries used",
        {"exit_code": 1, "retries": 1, "failures": 1},
        (Outcome.FAILED, State.FAILED, Reason.EXIT_CODE),
    ),
    ("a signal of its own", {"exit_code": 139}, (Outcome.FAILED, State.FAILED, Reason.EXIT_CODE)),
    ("exit 75", {"exit_code": 75}, (Outcome.REQUEUED, State.QUEUED, Reason.REQUEUED)),
    (
        "exit 75 too often",
        {"exit_code": 75, "requeues": MOST_REQUEUES},
        (Outcome.FAILED, State.FAILED, Reason.EXIT_CODE),
    ),
    (
        "cancelled",
        {"exit_code": 143, "stop_reason": Stop.CANCEL},
        (Outcome.CANCELLED, State.CANCELLED, Reason.CANCELLED_BY_USER),
    ),
    (
        "cancelled, exits 0",
        {"exit_code": 0, "stop_reason": Stop.CANCEL},
        (Outcome.CANCELLED, State.CANCELLED, Reason.CANCELLED_BY_USER),
    ),
    ("preempted", {"exit_code": 143, "stop_reason": Stop.PREEMPT}, (Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED)),
    (
        "preempted, exit 75",
        {"exit_code": 75, "stop_reason": Stop.PREEMPT},
        (Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED),
    ),
    (
        "preempted, exits 0 first",
        {"exit_code": 0, "stop_reason": Stop.PREEMPT},
        (Outcome.SUCCEEDED, State.SUCCEEDED, None),
    ),
    (
        "preempted, killed",
        {"exit_code": 137, "stop_reason": Stop.PREEMPT},
        (Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED),
    ),
    ("moved", {"exit_code": 143, "stop_reason": Stop.MOVE}, (Outcome.MOVED, State.QUEUED, Reason.PREEMPTED)),
    ("drained", {"exit_code": 143, "stop_reason": Stop.DRAIN}, (Outcome.REQUEUED, State.QUEUED, Reason.NODE_DRAINED)),
    ("requeued", {"exit_code": 143, "stop_reason": Stop.REQUEUE}, (Outcome.REQUEUED, State.QUEUED, Reason.REQUEUED)),
    (
        "time limit",
        {"exit_code": 143, "stop_reason": Stop.TIMEOUT},
        (Outcome.TIMED_OUT, State.TIMED_OUT, Reason.TIME_LIMIT),
    ),
    (
        "time limit, exit 75",
        {"exit_code": 75, "stop_reason": Stop.TIMEOUT},
        (Outcome.TIMED_OUT, State.TIMED_OUT, Reason.TIME_LIMIT),
    ),
    ("time limit, exits 0", {"exit_code": 0, "stop_reason": Stop.TIMEOUT}, (Outcome.SUCCEEDED, State.SUCCEEDED, None)),
    ("lost", {"exit_code": None, "lost": True}, (Outcome.LOST, State.QUEUED, Reason.NODE_LOST)),
    (
        "lost too often",
        {"exit_code": None, "lost": True, "losses": MOST_LOSSES},
        (Outcome.LOST, State.FAILED, Reason.NODE_LOST),
    ),
    (
        "lost too often, retries left",
        {"exit_code": None, "lost": True, "losses": MOST_LOSSES, "retries": 1},
        (Outcome.LOST, State.QUEUED, Reason.RETRYING),
    ),
    (
        "lost while cancelled",
        {"exit_code": None, "lost": True, "stop_reason": Stop.CANCEL},
        (Outcome.LOST, State.CANCELLED, Reason.CANCELLED_BY_USER),
    ),
    (
        "lost at its time limit",
        {"exit_code": None, "lost": True, "stop_reason": Stop.TIMEOUT},
        (Outcome.LOST, State.TIMED_OUT, Reason.TIME_LIMIT),
    ),
]


@pytest.mark.parametrize(("ending", "verdict"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_an_ending_has_one_verdict(ending: dict[str, Any], verdict: tuple[Any, Any, Any]) -> None:
    judged = judge(Ending(**{"stop_reason": "", **ending}))
    assert (judged.outcome, judged.state, judged.reason) == verdict


@pytest.mark.parametrize("reason", [Stop.PREEMPT, Stop.DRAIN, Stop.REQUEUE])
def test_being_stopped_by_others_costs_no_retry(reason: Attempt.StopReason) -> None:
    judged = judge(Ending(143, reason, failures=1, retries=3))
    assert (judged.failures, judged.requeues, judged.losses) == (1, 0, 0)


def test_quick_requeues_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    pauses = [judge(Ending(75, "", requeues=times, ran_s=3)).pause_s for times in (0, 1, 2, 30)]
    assert pauses == [2, 4, 8, LONGEST_PAUSE_S]
    assert judge(Ending(75, "", requeues=30, ran_s=QUICK_S)).pause_s == 0


def test_the_fault_of_a_node_counts_as_nothing() -> None:
    judged = judge(Ending(None, "", node_fault=True, losses=MOST_LOSSES))
    assert (judged.state, judged.reason) == (State.QUEUED, Reason.NO_HEALTHY_NODE)
    assert (judged.failures, judged.requeues, judged.losses) == (0, 0, MOST_LOSSES)


def test_a_gang_whose_servers_are_not_ready_waits_longer_each_time_and_not_for_ever() -> None:
    judged = [judge(Ending(None, "", not_ready=True, requeues=times)) for times in (0, 4, 99)]
    assert {(one.state, one.reason, one.failures) for one in judged} == {(State.QUEUED, Reason.NO_HEALTHY_NODE, 0)}
    assert [(one.requeues, one.pause_s) for one in judged] == [(1, NODE_PAUSE_S), (5, 32), (100, LONGEST_PAUSE_S)]
    ended = judge(Ending(None, "", not_ready=True, requeues=MOST_REQUEUES))
    assert (ended.state, ended.reason) == (State.FAILED, Reason.NO_HEALTHY_NODE)


def test_exit_75_is_counted_apart_from_failures() -> None:
    judged = judge(Ending(75, "", requeues=4))
    assert (judged.failures, judged.requeues) == (0, 5)


def test_an_end_by_the_site_is_no_failure_unless_the_job_has_succeeded() -> None:
    by_site = judge(Ending(1, "", by_site=True, retries=0))
    assert (by_site.outcome, by_site.state, by_site.failures) == (Outcome.PREEMPTED, State.QUEUED, 0)
    assert judge(Ending(0, "", by_site=True)).state == State.SUCCEEDED


def test_a_loss_costs_no_retry() -> None:
    judged = judge(Ending(None, "", lost=True, retries=1))
    assert (judged.failures, judged.losses) == (0, 1)


def test_a_failure_says_the_exit_code_and_the_retries() -> None:
    assert judge(Ending(7, "", retries=2)).message == "exit code 7; retry 1 of 2"
