"""Two transactions at the same moment, on PostgreSQL: a thread, with a connection of its own, waits for our lock."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from tests.engines.engine_lab import until

only_there = pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one writer in at a time")


def apart(act: Callable[[], Any]) -> Any:
    """Do it in a thread, which has a connection of its own."""
    try:
        return act()
    finally:
        connection.close()


def wait_for_our_lock(other: Future[Any]) -> None:
    """Until the other has ended, or waits for a lock that our transaction holds."""
    waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"

    def has_come() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(waits)
            return other.done() or bool(cursor.fetchone()[0])

    until(has_come)


def one_after_the_other(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """What the second returns or raises, which comes before the first is committed."""
    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            first()
            late = threads.submit(apart, second)
            wait_for_our_lock(late)
        return late.result()
