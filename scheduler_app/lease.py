"""One scheduler at a time: a row with a holder and an expiry, taken and kept by conditional updates."""

from datetime import datetime, timedelta

from django.db.models import F

from scheduler_app.errors import LeaseLost
from scheduler_app.models import SchedulerLease

LEASE = timedelta(seconds=10)


def hold_lease(holder: str, now: datetime) -> bool:
    """Keep the lease, or take it when it has run out. False: another scheduler has it."""
    row, _ = SchedulerLease.objects.get_or_create(pk=SchedulerLease.THE_ONE, defaults={"expires_at": now})
    lease = SchedulerLease.objects.filter(pk=row.pk)
    if lease.filter(holder=holder, expires_at__gt=now).update(expires_at=now + LEASE):
        return True
    free = lease.filter(expires_at__lte=now)
    return bool(free.update(holder=holder, expires_at=now + LEASE, listening_since=now))


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


def release_lease(holder: str, now: datetime) -> None:
    """Let the next scheduler start at once."""
    SchedulerLease.objects.filter(pk=SchedulerLease.THE_ONE, holder=holder).update(expires_at=now)
