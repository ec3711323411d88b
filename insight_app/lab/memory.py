"""Memory limit of the process of a lab run: of its address space, and what is told when it is reached."""

import os
import resource
from contextlib import suppress

from django.conf import settings

MIB = 1 << 20
LEAST_MIB = 2048
PART_OF_MACHINE = 4
"""The default is one part of so many of the machine's memory, and `LEAST_MIB` at least."""


def memory_limit_mib() -> int:
    """As it is set, else by the machine's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    return int(settings.MOTLEY_LAB_MEMORY_MIB or max(LEAST_MIB, machine // PART_OF_MACHINE))


def limit_memory(process_id: int) -> None:
    """Limit another process, and those that it starts, each for itself; not if it has ended, or has a lower limit."""
    most = memory_limit_mib() * MIB
    with suppress(OSError, ValueError):
        resource.prlimit(process_id, resource.RLIMIT_AS, (most, most))


def in_words(reason: str) -> str:
    """The reason of a failure, with the limit and the remedy if memory was short."""
    if "MemoryError" not in reason:
        return reason
    return (
        f"It reached its memory limit of {memory_limit_mib():,} MiB: choose fewer days or policies; "
        "administrators set the limit with MOTLEY_LAB_MEMORY_MIB."
    )
