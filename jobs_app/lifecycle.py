"""What becomes of a job when one of its attempts ends. Pure."""

from dataclasses import dataclass, replace

from jobs_app.models import Attempt, Job, Reason

EX_TEMPFAIL = 75
"""sysexits.h: "checkpointed, requeue me"."""
MOST_REQUEUES = 100
MOST_LOSSES = 3
"""Losing a node is not the job's fault, so it costs no retry; but a job that keeps killing its node must end."""

State = Job.State
Outcome = Attempt.Outcome

AFTER_STOP: dict[Attempt.StopReason, tuple[Attempt.Outcome, Job.State, Reason]] = {
    Attempt.StopReason.CANCEL: (Outcome.CANCELLED, State.CANCELLED, Reason.CANCELLED_BY_USER),
    Attempt.StopReason.TIMEOUT: (Outcome.TIMED_OUT, State.TIMED_OUT, Reason.TIME_LIMIT),
    Attempt.StopReason.PREEMPT: (Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED),
    Attempt.StopReason.DRAIN: (Outcome.PREEMPTED, State.QUEUED, Reason.NODE_DRAINED),
    Attempt.StopReason.REQUEUE: (Outcome.PREEMPTED, State.QUEUED, Reason.REQUEUED),
}

FOR_GOOD = (Attempt.StopReason.CANCEL, Attempt.StopReason.TIMEOUT)


@dataclass(frozen=True)
class Ending:
    """How an attempt ended, and what is known of its job."""

    exit_code: int | None
    stop_reason: str
    lost: bool = False
    failures: int = 0
    retries: int = 0
    requeues: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Verdict:
    """What to write: the attempt's outcome, the job's next state and why."""

    outcome: Outcome
    state: State
    reason: Reason | None = None
    message: str = ""
    failures: int = 0
    requeues: int = 0
    losses: int = 0


def judge(ending: Ending) -> Verdict:
    """The job's next state; a job that finished its work has succeeded, whatever it was told meanwhile."""
    if ending.lost:
        return _lost(replace(ending, losses=ending.losses + 1))
    if ending.exit_code == 0 and ending.stop_reason != Attempt.StopReason.CANCEL:
        return _keep(ending, Outcome.SUCCEEDED, State.SUCCEEDED)
    if ending.stop_reason:
        return _keep(ending, *AFTER_STOP[Attempt.StopReason(ending.stop_reason)])
    if ending.exit_code == EX_TEMPFAIL and ending.requeues < MOST_REQUEUES:
        once_more = replace(ending, requeues=ending.requeues + 1)
        return _keep(once_more, Outcome.PREEMPTED, State.QUEUED, Reason.REQUEUED, "the job asked to be requeued")
    return _try_again(ending, Outcome.FAILED, Reason.EXIT_CODE, f"exit code {ending.exit_code}")


def _lost(ending: Ending) -> Verdict:
    """What was told to end for good has ended; the others run again."""
    if ending.stop_reason in FOR_GOOD:
        _, state, reason = AFTER_STOP[Attempt.StopReason(ending.stop_reason)]
        return _keep(ending, Outcome.LOST, state, reason)
    if ending.losses <= MOST_LOSSES:
        return _keep(ending, Outcome.LOST, State.QUEUED, Reason.NODE_LOST, "its node or supervisor was lost")
    return _try_again(ending, Outcome.LOST, Reason.NODE_LOST, f"lost {ending.losses} times")


def _try_again(ending: Ending, outcome: Outcome, reason: Reason, what: str) -> Verdict:
    """Queued once more while retries are left, else failed."""
    again = replace(ending, failures=ending.failures + 1)
    if again.failures <= again.retries:
        return _keep(
            again, outcome, State.QUEUED, Reason.RETRYING, f"{what}; retry {again.failures} of {again.retries}"
        )
    message = f"{what}; all {again.retries} retries are used" if again.retries else what
    return _keep(again, outcome, State.FAILED, reason, message)


def _keep(ending: Ending, outcome: Outcome, state: State, reason: Reason | None = None, message: str = "") -> Verdict:
    return Verdict(outcome, state, reason, message, ending.failures, ending.requeues, ending.losses)
