"""What nobody asks for any more goes: bit by bit, so that no lock is held for long."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from audit_app.models import AuditEntry
from cluster_app.models import NodeEvent
from jobs_app.models import IdempotencyKey, JobEvent
from scheduler_app.models import GpuTypeUsage, Round, SchedulerLease, TeamUsage

AT_ONCE = 500
"""Rows in one transaction: a fraction of a second."""
NEWEST_ROUNDS = 10
"""Their snapshots are kept however old they are: pages explain jobs by the last good round."""
EVERY = timedelta(hours=1)
LONGEST = timedelta(seconds=5)
"""The scheduler goes on to its next round after so long, and with the rest an hour later."""


@dataclass(frozen=True)
class Shelf:
    """One kind of row: which of them are out of date, and what becomes of those."""

    words: str
    keep: str
    """The setting that says for how long."""
    old: Callable[[datetime], QuerySet[Any]]
    drop: Callable[[QuerySet[Any]], object]


def prune(now: datetime, *, longest: timedelta | None = None) -> dict[str, int]:
    """Drop what is out of date, shelf by shelf; gives how much of each went. Safe to run twice, and beside rounds."""
    give_up_at = monotonic() + longest.total_seconds() if longest is not None else float("inf")
    gone = dict.fromkeys((shelf.words for shelf in SHELVES), 0)
    for shelf in SHELVES:
        for count in _dropped(shelf, now):
            gone[shelf.words] += count
            if monotonic() > give_up_at:
                return gone
    return gone


def out_of_date(now: datetime) -> dict[str, int]:
    """What `prune` would drop."""
    return {shelf.words: shelf.old(_limit(shelf, now)).count() for shelf in SHELVES}


def prune_when_due(now: datetime) -> None:
    """Once an hour, by whichever scheduler comes first."""
    due = SchedulerLease.objects.filter(Q(pruned_at=None) | Q(pruned_at__lte=now - EVERY))
    if due.update(pruned_at=now):
        prune(now, longest=LONGEST)


def _limit(shelf: Shelf, now: datetime) -> datetime:
    keep: timedelta = getattr(settings, shelf.keep)
    return now - keep


def _dropped(shelf: Shelf, now: datetime) -> Iterator[int]:
    """How many of each batch went; the oldest first."""
    limit = _limit(shelf, now)
    while pks := list(shelf.old(limit).order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        with transaction.atomic():
            shelf.drop(shelf.old(limit).filter(pk__in=pks))
        yield len(pks)


def _archives(before: datetime) -> QuerySet[Any]:
    return _old_rounds(before).exclude(archive=None).defer("archive")


def _old_rounds(before: datetime) -> QuerySet[Any]:
    good = Round.objects.filter(result=Round.Result.COMMITTED).order_by("-number")
    newest = list(good.values_list("number", flat=True)[:NEWEST_ROUNDS])
    last = Round.objects.aggregate(Max("number"))["number__max"] or 0
    return Round.objects.filter(started_at__lt=before, number__lt=min([last, *newest]))


def _job_events(before: datetime) -> QuerySet[Any]:
    """Of jobs that ended long ago. The newest events stay, for rounds are due when there is a newer one."""
    newest = JobEvent.objects.filter(kind__in=JobEvent.WAKING).aggregate(Max("pk"))["pk__max"] or 0
    return JobEvent.objects.filter(at__lt=before, job__finished_at__lt=before, pk__lt=newest)


def _node_events(before: datetime) -> QuerySet[Any]:
    newest = NodeEvent.objects.aggregate(Max("pk"))["pk__max"] or 0
    return NodeEvent.objects.filter(at__lt=before, pk__lt=newest)


def _forget_snapshots(rounds: QuerySet[Any]) -> object:
    return rounds.update(archive=None)


def _delete(rows: QuerySet[Any]) -> object:
    return rows.delete()


SHELVES = (
    Shelf("snapshots of rounds", "MOTLEY_KEEP_SNAPSHOTS", _archives, _forget_snapshots),
    Shelf("rounds", "MOTLEY_KEEP_ROUNDS", _old_rounds, _delete),
    Shelf("events of jobs that ended", "MOTLEY_KEEP_EVENTS", _job_events, _delete),
    Shelf("events of nodes", "MOTLEY_KEEP_EVENTS", _node_events, _delete),
    Shelf("minutes of teams", "MOTLEY_KEEP_MINUTES", lambda day: TeamUsage.objects.filter(minute__lt=day), _delete),
    Shelf(
        "minutes of GPU types", "MOTLEY_KEEP_MINUTES", lambda day: GpuTypeUsage.objects.filter(minute__lt=day), _delete
    ),
    Shelf(
        "idempotency keys",
        "MOTLEY_KEEP_IDEMPOTENCY_KEYS",
        lambda day: IdempotencyKey.objects.filter(created_at__lt=day),
        _delete,
    ),
    Shelf("audit entries", "MOTLEY_KEEP_AUDIT", lambda day: AuditEntry.objects.filter(at__lt=day), _delete),
)
