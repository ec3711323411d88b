"""One scheduler at a time: a row with a holder and an expiry, taken and kept by conditional updates."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from threading import Event, Thread
from time import monotonic

from django.db import DatabaseError, connection
from django.db.models import F

from scheduler_app.errors import LeaseLost
from scheduler_app.holder import has_ended
from scheduler_app.models import SchedulerLease

LEASE = timedelta(seconds=10)
LONGEST_TICK = timedelta(minutes=5)
"""A scheduler that takes longer is taken for stuck."""


def hold_lease(holder: str, now: datetime) -> bool:
    """Keep the lease, or take it when it has run out or its holder was killed. False: another scheduler has it."""
    row, _ = SchedulerLease.objects.get_or_create(pk=SchedulerLease.THE_ONE, defaults={"expires_at": now})
    lease = SchedulerLease.objects.filter(pk=row.pk)
    if lease.filter(holder=holder, expires_at__gt=now).update(expires_at=now + LEASE):
        return True
    taken = {"holder": holder, "expires_at": now + LEASE, "listening_since": now}
    if lease.filter(expires_at__lte=now).update(**taken):
        return True
    return has_ended(row.holder) and bool(lease.filter(holder=row.holder).update(**taken))


def open_round(holder: str, now: datetime) -> int:
    """The next round's number: the fence of all that it writes."""
    mine = SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder)
    if not mine.update(round_number=F("round_number") + 1, expires_at=now + LEASE):
        raise LeaseLost("another scheduler took over before the round began")
    return mine.values_list("round_number", flat=True).get()


def fence(holder: str, number: int) -> None:
    """Inside a transaction: go on only if this round is still the last one opened, by us."""
    mine = SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder, round_number=number)
    if not mine.update(round_number=number):
        raise LeaseLost(f"another scheduler took over during round {number}")


@contextmanager
def lease_kept(holder: str, now: datetime) -> Iterator[None]:
    """Meanwhile the lease does not run out: of two who take it from each other as they solve, neither would commit."""
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
        with suppress(DatabaseError):  # tried again soon; if it goes on, the lease runs out, as it should
            mine.update(expires_at=now + LEASE)
    connection.close()


def release_lease(holder: str, now: datetime) -> None:
    """Let the next scheduler start at once."""
    SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder).update(expires_at=now)
