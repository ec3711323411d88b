"""Isolation of items that raise: found by bisection, quarantined with exponential back-off, and shown."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import InterfaceError, OperationalError, transaction

from engines.protocol import EngineError
from scheduler_app.errors import LeaseLost, NotIsolated
from scheduler_app.models import SetAside

log = logging.getLogger(__name__)
Kind = SetAside.Kind
Item = TypeVar("Item")
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
OF_NO_ITEM = (LeaseLost, NotIsolated, EngineError, OperationalError, InterfaceError)
"""Errors that say nothing of what was being looked at."""


def isolate(items: Sequence[Item], act: Callable[[Sequence[Item]], object]) -> dict[Item, Exception]:
    """Act on all items at once; if that raises, on each half (bisection). Returns single items that raise.

    `act` is repeated for items that did not raise by themselves: it must undo what it did when it raises, or be
    idempotent.
    """
    if not items:
        return {}
    try:
        act(items)
    except OF_NO_ITEM:
        raise
    except Exception as error:
        if len(items) == 1:
            log.exception("%s is set aside", items[0])
            return {items[0]: error}
    else:
        return {}
    half = len(items) // 2
    return isolate(items[:half], act) | isolate(items[half:], act)


@transaction.atomic
def set_aside(kind: Kind, found: Mapping[str, Exception], now: datetime) -> None:
    """Quarantine these items for a pause that doubles each time."""
    before = {row.key: row for row in SetAside.objects.filter(kind=kind, key__in=found)}
    for key, error in found.items():
        times = before[key].times + 1 if key in before else 1
        SetAside.objects.update_or_create(
            kind=kind,
            key=key,
            defaults={"error": error_text(error), "times": times, "retry_at": now + pause_after(times)},
            create_defaults={"error": error_text(error), "since": now, "retry_at": now + pause_after(1)},
        )


def pause_after(times: int) -> timedelta:
    return min(FIRST_PAUSE * (1 << min(times - 1, 10)), LONGEST_PAUSE)


def set_aside_at(kind: Kind, now: datetime) -> dict[str, SetAside]:
    """Quarantined items by key; a clock that was set back makes no pause longer."""
    rows = SetAside.objects.filter(kind=kind, retry_at__gt=now, retry_at__lte=now + LONGEST_PAUSE)
    return {row.key: row for row in rows}


def forget_recovered(now: datetime) -> None:
    """Delete rows of items that were retried a while ago and have not raised since."""
    SetAside.objects.filter(retry_at__lt=now - LONGEST_PAUSE).delete()


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
