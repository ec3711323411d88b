"""Leases of the scheduler's loops: taken and renewed by conditional updates, with fencing tokens."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic
from uuid import uuid4

from django.db import DatabaseError, connection, transaction
from django.db.models import F, Q

from scheduler_app.errors import LeaseLost
from scheduler_app.models import SchedulerLease

Loop = SchedulerLease.Loop
LEASE = timedelta(seconds=10)
LONGEST_TURN = timedelta(minutes=5)
"""After so long a turn is taken for stuck, and its lease no longer renewed; a round has its solver's time, too."""
MOST_SKEW = LONGEST_TURN
"""A lease that expires later than this was taken by a clock that was set back since; hosts may differ by less."""
DEAD_STATES = {"Z", "X"}
"""A zombie has ended; only its parent has not read its status yet."""


def acquire_lease(holder: str, now: datetime, loop: Loop = Loop.ROUNDS) -> bool:
    """Renew the lease, or take it over if it expired or its holder was killed. False: another scheduler holds it."""
    row, _ = SchedulerLease.objects.get_or_create(pk=loop, defaults={"expires_at": now})
    lease = SchedulerLease.objects.filter(pk=row.pk)
    if lease.filter(holder=holder, expires_at__gt=now).update(expires_at=now + LEASE):
        return True
    taken = {"holder": holder, "expires_at": now + LEASE, "listening_since": now}
    if loop == Loop.ENGINES:  # a round opens with a token of its own
        taken["token"] = F("token") + 1
    expired = Q(expires_at__lte=now) | Q(expires_at__gt=now + MOST_SKEW)
    if lease.filter(expired).update(**taken):
        return True
    return has_ended(row.holder) and bool(lease.filter(holder=row.holder).update(**taken))


def open_round(holder: str, now: datetime) -> int:
    """Open a round and return its number, the fencing token of everything that it writes."""
    mine = SchedulerLease.objects.filter(pk=Loop.ROUNDS, holder=holder)
    if not mine.update(token=F("token") + 1, expires_at=now + LEASE):
        raise LeaseLost("another scheduler took over before the round began")
    return mine.values_list("token", flat=True).get()


def check_fencing_token(holder: str, number: int) -> None:
    """Check the fencing token inside a transaction: `LeaseLost` unless this round is the newest and its holder ours."""
    mine = SchedulerLease.objects.filter(pk=Loop.ROUNDS, holder=holder, token=number)
    if not mine.update(token=number):
        raise LeaseLost(f"another scheduler took over during round {number}")


@dataclass(frozen=True)
class Fence:
    """Fence of the loop of engines: only its present holder writes what engines report, and commands them."""

    holder: str
    token: int

    @classmethod
    def of(cls, holder: str) -> "Fence":
        """The fence of the process that holds the lease; `LeaseLost` if another does."""
        mine = SchedulerLease.objects.filter(pk=Loop.ENGINES, holder=holder)
        token = mine.values_list("token", flat=True).first()
        if token is None:
            raise LeaseLost("another scheduler speaks with the engines")
        return cls(holder, token)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Transaction of the lease's holder, which blocks a takeover until its end; raises `LeaseLost` after one."""
        with transaction.atomic():
            self.check()
            yield

    def check(self) -> None:
        """Raise `LeaseLost` if another process has taken over; inside a transaction, none does until its end."""
        lease = SchedulerLease.objects.filter(pk=Loop.ENGINES, holder=self.holder, token=self.token)
        if connection.in_atomic_block:
            lease = lease.select_for_update()
        if not list(lease.values_list("pk")):
            raise LeaseLost("another scheduler took over while this one spoke with the engines")


@contextmanager
def lease_renewed(holder: str, now: datetime, loop: Loop, *, longest: timedelta = LONGEST_TURN) -> Iterator[None]:
    """Renew the lease in a thread: if two schedulers took it from each other while solving, neither would commit."""
    done = Event()
    renewal = Thread(target=_renew, args=(loop, holder, now, now + longest, done), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()


def _renew(loop: Loop, holder: str, began: datetime, until: datetime, done: Event) -> None:
    mine = SchedulerLease.objects.filter(pk=loop, holder=holder)
    start, now = monotonic(), began
    while not done.wait(LEASE.total_seconds() / 3) and now < until:
        now = began + timedelta(seconds=monotonic() - start)
        with suppress(DatabaseError):  # retried soon; if the database stays away, the lease expires, as it should
            mine.update(expires_at=now + LEASE)
    connection.close()


def engines_heard_at(now: datetime) -> datetime:
    """Until when rows say what happened at the engines; now, before the first turn of their loop.

    A turn that takes long stores ends that lie before its beginning, while rounds go on beside it.
    """
    heard = SchedulerLease.objects.filter(pk=Loop.ENGINES).values_list("heard_at", flat=True).first()
    return min(heard or now, now)


def release_lease(holder: str, now: datetime) -> None:
    """Expire the holder's leases, so that another scheduler can start at once."""
    SchedulerLease.objects.filter(holder=holder).update(expires_at=now)


def holder_name() -> str:
    """This thread's name as lease holder: host, boot and container, process id, its start, a random part."""
    return _name(os.getpid(), get_ident())


def has_ended(holder: str) -> bool:
    """Whether the holder ran on this boot and container and has ended; False for holders elsewhere."""
    words = holder.rsplit(":", 4)
    return len(words) == 5 and words[1] == _place() and not _runs(int(words[2]), words[3])


@cache
def _name(pid: int, thread: int) -> str:
    """The name, made on demand: a name made before a fork would be shared with the children."""
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
