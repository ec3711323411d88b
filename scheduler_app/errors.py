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


class TooManyStreams(SchedulerError):
    """Each open stream keeps a thread, and the service needs some for everybody else."""

    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"This process follows {most} logs already; ask again soon, or poll from an offset.")
