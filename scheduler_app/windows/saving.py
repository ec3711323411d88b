"""How long before a window jobs are stopped, so that their work is saved when it begins."""

from datetime import timedelta

LONGEST_SAVING = timedelta(hours=2)
"""Before a window, however long a job takes to save its work."""
MARGIN = timedelta(seconds=15)
"""Turns of the scheduler and the end of processes take a while."""


def time_to_save(grace_s: int, checkpoint_s: float | None) -> timedelta:
    """From the stop of a job to the begin of the window: its grace, its last checkpoint, and a margin."""
    return min(timedelta(seconds=grace_s + (checkpoint_s or 0)), LONGEST_SAVING) + MARGIN
