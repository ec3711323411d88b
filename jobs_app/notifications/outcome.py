"""Outcome of a delivery, the same for every kind of target."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Whether a message was taken, and else why not, in words without secrets."""

    sent: bool
    error: str = ""
    final: bool = False
    """Another try would end alike."""
