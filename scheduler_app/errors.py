"""What can go wrong in a round."""


class SchedulerError(Exception):
    """Base of the scheduler's errors."""


class LeaseLost(SchedulerError):
    """Another scheduler took over: nothing of this round may be written."""


class NotReplayable(SchedulerError):
    """The round's snapshot was dropped, or never made."""
