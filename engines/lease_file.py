"""Lease file of an agent: the time until which jobs may run without contact to the service.

The time is that of the machine since its boot (CLOCK_BOOTTIME), which nobody sets and which goes on while the machine
sleeps. A lease of an earlier boot is over.
"""

import json
import os
from functools import cache
from math import inf
from pathlib import Path
from typing import NamedTuple, TypedDict

from engines.linux import seconds_since_boot

GRACE_PART = 0.5
"""Most of a lease that may be taken up by the grace period at its end."""
NOT_WRITTEN_PART = 0.02
"""Of a lease: it is written anew once so much of it is over, and so may end by so much too early."""


class LeaseTerms(TypedDict):
    """Terms of the lease for the supervisor of an attempt."""

    path: str
    grace_s: float


class Lease(NamedTuple):
    """A lease as it is stored."""

    until_s: float
    length_s: float
    boot: str

    def left_s(self, now_s: float, boot: str) -> float:
        """Seconds that are left at a moment of this boot; minus infinity if the lease is from another boot."""
        return self.until_s - now_s if self.boot == boot else -inf

    def is_nearly(self, before: "Lease") -> bool:
        """Whether the lease before ends so little earlier that it may stand for this one."""
        is_alike = (self.length_s, self.boot) == (before.length_s, before.boot)
        return is_alike and 0 <= self.until_s - before.until_s < NOT_WRITTEN_PART * self.length_s

    def grace_s(self, asked_s: float) -> float:
        """The grace period at the end of the lease: as asked, but not the greater part of the lease."""
        return min(asked_s, GRACE_PART * self.length_s)


class LeaseFile:
    """The file of a lease, renewed by the agent and read by the supervisors of its attempts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = Lease(0.0, 0.0, "")

    def renew(self, asked_at_s: float, length_s: float) -> None:
        """Renew the lease from the moment before the request. No fsync: after a power cut it has expired anyway.

        One of nearly the same end is left as it is: the file is not written for each message.
        """
        lease = Lease(asked_at_s + length_s, length_s, boot_id())
        if lease.is_nearly(self._written):
            return
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.write_text(json.dumps(lease))
        beside.replace(self.path)
        self._written = lease

    def read(self) -> Lease | None:
        """The lease; None if there never was one."""
        try:
            return Lease(*json.loads(self.path.read_text()))
        except FileNotFoundError:
            return None

    def left_s(self) -> float:
        """Seconds until no process may be left; negative if that time has passed."""
        lease = self.read()
        return lease.left_s(seconds_since_boot(), boot_id()) if lease is not None else -inf

    def must_stop_within_s(self, grace_s: float) -> float | None:
        """Seconds that an attempt has left to stop; None while it need not stop."""
        lease = self.read()
        if lease is None:
            return 0.0
        left_s = lease.left_s(seconds_since_boot(), boot_id())
        return max(left_s, 0.0) if left_s <= lease.grace_s(grace_s) else None


@cache
def boot_id() -> str:
    """The kernel's name of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
