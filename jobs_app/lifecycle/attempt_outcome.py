"""Verdict on an ended attempt: its outcome, and the next state of its job. Pure."""

from dataclasses import dataclass, replace

from jobs_app.models import Attempt, Job, Reason
from jobs_app.models.job import LONGEST_PAUSE

EX_TEMPFAIL = 75
"""sysexits.h: "checkpointed, requeue me"."""
MOST_REQUEUES = 100
QUICK_S, LONGEST_PAUSE_S = 60.0, LONGEST_PAUSE.total_seconds()
"""A job that asks to be requeued before it has run for so long waits twice as long each time, up to the limit."""
NODE_PAUSE_S = 10.0
"""Pause after a start that failed through its node's fault."""
MOST_LOSSES = 3
"""A lost node costs no retry, since it is not the job's fault; but a job that repeatedly kills its node must end."""

State = Job.State
Outcome = Attempt.Outcome

AFTER_STOP: dict[Attempt.StopReason, tuple[Attempt.Outcome, Job.State, Reason]] = {
    Attempt.StopReason.CANCEL: (Outcome.CANCELLED, State.CANCELLED, Reason.CANCELLED_BY_USER),
    Attempt.StopReason.TIMEOUT: (Outcome.TIMED_OUT, State.TIMED_OUT, Reason.TIME_LIMIT),
    Attempt.StopReason.PREEMPT: (Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED),
    Attempt.StopReason.MOVE: (Outcome.MOVED, State.QUEUED, Reason.PREEMPTED),
    Attempt.StopReason.DRAIN: (Outcome.REQUEUED, State.QUEUED, Reason.NODE_DRAINED),
    Attempt.StopReason.REQUEUE: (Outcome.REQUEUED, State.QUEUED, Reason.REQUEUED),
    Attempt.StopReason.WITHDRAW: (Outcome.REQUEUED, State.QUEUED, Reason.REQUEUED),
}

FOR_GOOD = (Attempt.StopReason.CANCEL, Attempt.StopReason.TIMEOUT)


@dataclass(frozen=True)
class Ending:
    """How an attempt ended, and the counters of its job."""

    exit_code: int | None
    stop_reason: str
    lost: bool = False
    by_site: bool = False
    """The cluster's own scheduler or administrator ended it."""
    no_storage: bool = False
    """A node did not have a storage that the job names."""
    node_fault: bool = False
    """The node could not start it: its disk is full, say."""
    not_ready: bool = False
    """A server of its gang was not ready: by its own fault, or by what the job has it prepare."""
    ran_s: float = 0.0
    failures: int = 0
    retries: int = 0
    requeues: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Verdict:
    """The attempt's outcome, the job's next state and its reason."""

    outcome: Outcome
    state: State
    reason: Reason | None = None
    message: str = ""
    failures: int = 0
    requeues: int = 0
    losses: int = 0
    pause_s: float = 0.0
    """Time for which the job is not placed again."""


def judge(ending: Ending) -> Verdict:
    """Verdict on an ending. Exit code 0 is a success even if the job was told to stop, unless it was cancelled."""
    if ending.lost:
        return _lost(replace(ending, losses=ending.losses + 1))
    if ending.exit_code == 0 and ending.stop_reason != Attempt.StopReason.CANCEL:
        return _keep(ending, Outcome.SUCCEEDED, State.SUCCEEDED)
    if ending.stop_reason:
        return _keep(ending, *AFTER_STOP[Attempt.StopReason(ending.stop_reason)])
    of_node = ending.no_storage or ending.node_fault or ending.not_ready
    if of_node or (ending.by_site and ending.requeues < MOST_REQUEUES):
        return _by_site(ending)
    if ending.exit_code == EX_TEMPFAIL and ending.requeues < MOST_REQUEUES:
        once_more = replace(ending, requeues=ending.requeues + 1)
        verdict = _keep(once_more, Outcome.REQUEUED, State.QUEUED, Reason.REQUEUED, "the job asked to be requeued")
        return replace(verdict, pause_s=_pause_s(once_more))
    return _try_again(ending, Outcome.FAILED, Reason.EXIT_CODE, f"exit code {ending.exit_code}")


def _pause_s(ending: Ending) -> float:
    """Exponential back-off of a job that asks to be requeued soon after its start."""
    return min(2.0 ** min(ending.requeues, 10), LONGEST_PAUSE_S) if ending.ran_s < QUICK_S else 0.0


def _not_ready(ending: Ending) -> Verdict:
    """Verdict on a gang that did not start: requeued with back-off, but not for ever: each time holds back a server."""
    if ending.requeues > MOST_REQUEUES:
        return _try_again(
            ending, Outcome.LOST, Reason.NO_HEALTHY_NODE, f"not all servers were ready {MOST_REQUEUES} times"
        )
    verdict = _keep(ending, Outcome.LOST, State.QUEUED, Reason.NO_HEALTHY_NODE, "not all of its servers were ready")
    return replace(verdict, pause_s=max(NODE_PAUSE_S, _pause_s(ending)))


def _by_site(ending: Ending) -> Verdict:
    """Verdict on an attempt that the site ended or could not start: the job is requeued."""
    if ending.not_ready:
        return _not_ready(replace(ending, requeues=ending.requeues + 1))
    if ending.node_fault:
        verdict = _keep(ending, Outcome.LOST, State.QUEUED, Reason.NO_HEALTHY_NODE, "its node could not start it")
        return replace(verdict, pause_s=NODE_PAUSE_S)
    if ending.no_storage:  # not counted: jobs stay away from the node meanwhile
        return _keep(ending, Outcome.FAILED, State.QUEUED, Reason.NO_STORAGE)
    return _keep(replace(ending, requeues=ending.requeues + 1), Outcome.PREEMPTED, State.QUEUED, Reason.PREEMPTED)


def _lost(ending: Ending) -> Verdict:
    """Verdict on a lost attempt: the job has ended if it was being cancelled or timed out, else it is requeued."""
    if ending.stop_reason in FOR_GOOD:
        _, state, reason = AFTER_STOP[Attempt.StopReason(ending.stop_reason)]
        return _keep(ending, Outcome.LOST, state, reason)
    if ending.losses <= MOST_LOSSES:
        return _keep(ending, Outcome.LOST, State.QUEUED, Reason.NODE_LOST, "its node or supervisor was lost")
    return _try_again(ending, Outcome.LOST, Reason.NODE_LOST, f"lost {ending.losses} times")


def _try_again(ending: Ending, outcome: Outcome, reason: Reason, what: str) -> Verdict:
    """Requeue while retries are left, else fail."""
    again = replace(ending, failures=ending.failures + 1)
    if again.failures <= again.retries:
        return _keep(
            again, outcome, State.QUEUED, Reason.RETRYING, f"{what}; retry {again.failures} of {again.retries}"
        )
    message = f"{what}; all {again.retries} retries are used" if again.retries else what
    return _keep(again, outcome, State.FAILED, reason, message)


def _keep(ending: Ending, outcome: Outcome, state: State, reason: Reason | None = None, message: str = "") -> Verdict:
    return Verdict(outcome, state, reason, message, ending.failures, ending.requeues, ending.losses)
