"""The scheduler's lease: taken and renewed by conditional updates; round numbers are its fencing tokens."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic
from uuid import uuid4

from django.db import DatabaseError, connection
from django.db.models import F

from scheduler_app.errors import LeaseLost
from scheduler_app.models import SchedulerLease

LEASE = timedelta(seconds=10)
LONGEST_TICK = timedelta(minutes=5)
"""After so long a tick is taken for stuck, and its lease is no longer renewed."""
DEAD_STATES = {"Z", "X"}
"""A zombie has ended; only its parent has not read its status yet."""


def acquire_lease(holder: str, now: datetime) -> bool:
    """Renew the lease, or take it over if it expired or its holder was killed. False: another scheduler holds it."""
    row, _ = SchedulerLease.objects.get_or_create(pk=SchedulerLease.THE_ONE, defaults={"expires_at": now})
    lease = SchedulerLease.objects.filter(pk=row.pk)
    if lease.filter(holder=holder, expires_at__gt=now).update(expires_at=now + LEASE):
        return True
    taken = {"holder": holder, "expires_at": now + LEASE, "listening_since": now}
    if lease.filter(expires_at__lte=now).update(**taken):
        return True
    return has_ended(row.holder) and bool(lease.filter(holder=row.holder).update(**taken))


def open_round(holder: str, now: datetime) -> int:
    """Open a round and return its number, the fencing token of everything that it writes."""
    mine = SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder)
    if not mine.update(round_number=F("round_number") + 1, expires_at=now + LEASE):
        raise LeaseLost("another scheduler took over before the round began")
    return mine.values_list("round_number", flat=True).get()


def check_fencing_token(holder: str, number: int) -> None:
    """Check the fencing token inside a transaction: `LeaseLost` unless this round is the newest and its holder ours."""
    mine = SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder, round_number=number)
    if not mine.update(round_number=number):
        raise LeaseLost(f"another scheduler took over during round {number}")


@contextmanager
def lease_renewed(holder: str, now: datetime) -> Iterator[None]:
    """Renew the lease in a thread: if two schedulers took it from each other while solving, neither would commit."""
    done = Event()
    renewal = Thread(target=_renew, args=(holder, now, done), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()


def _renew(holder: str, began: datetime, done: Event) -> None:
    mine = SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder)
    start, now = monotonic(), began
    while not done.wait(LEASE.total_seconds() / 3) and now < began + LONGEST_TICK:
        now = began + timedelta(seconds=monotonic() - start)
        with suppress(DatabaseError):  # retried soon; if the database stays away, the lease expires, as it should
            mine.update(expires_at=now + LEASE)
    connection.close()


def release_lease(holder: str, now: datetime) -> None:
    """Expire the lease, so that another scheduler can start at once."""
    SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder).update(expires_at=now)


def holder_name() -> str:
    """This thread's name as lease holder: host, boot and container, process id, its start, a random part."""
    return _name(os.getpid(), get_ident())


def has_ended(holder: str) -> bool:
    """Whether the holder ran on this boot and container and has ended; False for holders elsewhere."""
    words = holder.rsplit(":", 4)
    return len(words) == 5 and words[1] == _place() and not _runs(int(words[2]), words[3])


@cache
def _name(pid: int, thread: int) -> str:
    """Made on demand: a name made before a fork would be shared with the children."""
    host = socket.gethostname()[:30]
    return f"{host}:{_place()}:{pid}:{_start_of(pid)}:{uuid4().hex[:8]}"


def _place() -> str:
    """The scope of a process id: this boot of this machine and this PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"


def _runs(pid: int, began: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another account's, which /proc may hide from us
        return True
    return _start_of(pid) == began


def _start_of(pid: int) -> str:
    """In ticks since boot; empty if the process runs no more."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD_STATES else fields[18]
