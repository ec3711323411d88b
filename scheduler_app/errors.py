"""What can go wrong in a round, and with what is asked of the scheduler."""

from collections.abc import Iterable

from jobs_app.errors import Fault


class SchedulerError(Exception):
    """Base of the scheduler's errors."""

    code = "scheduler"
    faults: tuple[Fault, ...] = ()


class LeaseLost(SchedulerError):
    """Another scheduler took over: nothing of this round may be written."""

    code = "lease_lost"


class NotReplayable(SchedulerError):
    """The round's snapshot was dropped, or never made."""

    code = "not_replayable"


class InvalidRequest(SchedulerError):
    """What was sent cannot be accepted; every fault is listed."""

    code = "invalid"

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("The request has faults; each is listed with its place.")


class InvalidChoice(InvalidRequest):
    """The policy or a parameter of it is none; on pages, whose forms show no pointers, the text says which."""

    code = "invalid_choice"

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__(faults)
        self.args = (" ".join(fault["detail"] for fault in self.faults),)


class NoSuchPolicy(SchedulerError):
    """The policy that was chosen is gone."""

    code = "no_such_policy"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no policy {name!r} any more: choose another.")


class TooManyStreams(SchedulerError):
    """Each open stream keeps a thread, and the service needs some for everybody else."""

    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"This process follows {most} logs already; ask again soon, or poll from an offset.")
