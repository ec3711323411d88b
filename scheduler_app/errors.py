"""Errors of rounds and of requests to the scheduler."""

from collections.abc import Iterable
from typing import Any

from rest.errors import Fault, InvalidRequest


class SchedulerError(Exception):
    """Base class of the scheduler's errors."""

    code = "scheduler"
    faults: tuple[Fault, ...] = ()


class LeaseLost(SchedulerError):
    """Another scheduler took over the lease: this round's fencing token is no longer valid."""

    code = "lease_lost"


class NotIsolated(SchedulerError):
    """An error of a round is not the doing of single jobs."""

    code = "not_isolated"


class NoStorage(SchedulerError):
    """A storage that the job names has no path any more where the round has placed it."""

    code = "no_storage"


class NoSuchAgent(SchedulerError):
    """The token of a machine, or its join token, is not good (any more)."""

    code = "not_authenticated"


class AgentRefused(SchedulerError):
    """A machine that does not do, or not so, was to join or to be told something."""

    code = "agent_refused"


class TooManyUploads(SchedulerError):
    """As many files are being sent as may be, by this machine or by all that joined."""

    code = "too_many_uploads"
    retry_after_s = 5

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}: send it again in {self.retry_after_s} s.")


class HistoryTooLong(SchedulerError):
    """More jobs ran in the period than a trace may have."""

    code = "history_too_long"


class InvalidLabRun(SchedulerError, InvalidRequest):
    """A lab run was asked for that cannot be; the message holds the details for pages."""

    code = "invalid_lab_run"

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__(faults)
        self.args = (" ".join(fault["detail"] for fault in self.faults),)


class TooManyLabRuns(SchedulerError):
    """The person has as many unfinished lab runs as one may have."""

    code = "too_many_lab_runs"


class LabRunHasEnded(SchedulerError):
    """A lab run that has ended cannot be cancelled."""

    code = "lab_run_has_ended"


class NotReplayable(SchedulerError):
    """The round has no snapshot."""

    code = "not_replayable"


class InvalidChoice(SchedulerError, InvalidRequest):
    """The policy or a parameter is invalid; the message holds the details for pages, which show no pointers."""

    code = "invalid_choice"

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__(faults)
        self.args = (" ".join(fault["detail"] for fault in self.faults),)


class NoSuchPolicy(SchedulerError):
    """The chosen policy no longer exists."""

    code = "no_such_policy"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no policy {name!r} any more; choose another.")


class ChangedSince(SchedulerError):
    """Another setting is in force than the one whose choice was to be undone."""

    code = "changed_since"

    def __init__(self, current: Any) -> None:
        whom = current.created_by or "the service"
        super().__init__(
            f"The setting has been changed since: {whom} chose {current.policy} on {current.created_at:%F at %H:%M} "
            "UTC. Look at it, and undo that change or choose an earlier setting."
        )


class CannotApply(SchedulerError):
    """A run of the lab has no result for this policy that could be applied."""

    code = "cannot_apply"


class NoWebSocket(SchedulerError):
    """The request is no WebSocket handshake, or the web server cannot carry one."""

    code = "no_websocket"


class TooManyLongRequests(SchedulerError):
    """The user, or all, have as many open sessions or streams of logs as one process allows."""

    code = "too_many_long_requests"
    retry_after_s = 15

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}: close one, or try again later.")


class TooManySolves(SchedulerError):
    """This process solves as many rounds for requests as it may, or one for the same user."""

    code = "too_many_solves"

    def __init__(self) -> None:
        super().__init__("Other questions of this kind are being answered, each of which plans rounds: try again.")
