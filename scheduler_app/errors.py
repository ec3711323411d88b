"""Errors of rounds and of policy settings."""

from collections.abc import Iterable
from typing import Any

from web.rest.errors import Fault, InvalidRequest


class SchedulerError(Exception):
    """Base class of the scheduler's errors."""

    code = "scheduler"
    faults: tuple[Fault, ...] = ()


class LeaseLost(SchedulerError):
    """Another scheduler took over the lease: this round's fencing token is no longer valid."""

    code = "lease_lost"


class NotIsolated(SchedulerError):
    """An error of a round could not be isolated to single jobs."""

    code = "not_isolated"


class NoStorage(SchedulerError):
    """A storage that the job names no longer has a path on the nodes where the round has placed it."""

    code = "no_storage"


class NotReplayable(SchedulerError):
    """The round has no snapshot, or its policy or a parameter of it no longer exists."""

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


class NothingToUndo(SchedulerError):
    """The setting is the first one, and the service made it when it was set up: nobody has changed it."""

    code = "nothing_to_undo"

    def __init__(self) -> None:
        super().__init__("The setting is that with which the service began: there is nothing to undo.")


class ChangedSince(SchedulerError):
    """The setting whose choice was to be undone is no longer in force."""

    code = "changed_since"

    def __init__(self, current: Any) -> None:
        whom = current.created_by or "the service"
        super().__init__(
            f"The setting has been changed since: {whom} chose {current.policy} at {current.created_at:%F %H:%M} UTC. "
            "Look at it, and undo that change or choose an earlier setting."
        )
