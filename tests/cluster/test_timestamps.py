"""Times are read as Django reads them, only faster."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from django.utils import timezone
from psycopg import DataError
from psycopg.postgres import types
from psycopg.pq import Format

from cluster_app.models import Node
from database.connections import FastTimes

OID = types["timestamptz"].oid


class DjangosTimes(BaseTzLoader):
    timezone = UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21 22:30:00+00",
        "2026-11-21 22:30:00.5+00",
        "2026-11-21 22:30:00.123456+00",
        "1999-12-31 23:59:59.999999+00",
        "0099-01-01 00:00:00+00",
        "9999-12-31 23:59:59.999999+00",
    ],
)
def test_a_time_is_what_django_takes_it_for(text: str) -> None:
    fast, slow = (loader(OID).load(text.encode()) for loader in (FastTimes, DjangosTimes))
    assert (fast, fast.tzinfo) == (slow, slow.tzinfo)


@pytest.mark.parametrize("text", ["infinity", "0044-03-15 00:00:00+00 BC", "10000-01-01 00:00:00+00"])
def test_what_is_no_time_of_python_is_refused_as_before(text: str) -> None:
    with pytest.raises(DataError):
        FastTimes(OID).load(text.encode())


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps times as text of its own")
def test_connections_read_so() -> None:
    with connection.cursor() as cursor:
        assert cursor.connection.adapters.get_loader(OID, Format.TEXT) is FastTimes
        cursor.execute("SELECT '2026-11-21 22:30:00+02'::timestamptz")
        assert cursor.fetchone() == (datetime(2026, 11, 21, 20, 30, tzinfo=UTC),)


@pytest.mark.django_db
def test_a_time_comes_back_as_it_was_written(lab) -> None:
    now = timezone.now()
    lab.node("n1")
    Node.objects.update(heard_at=now)
    assert Node.objects.get().heard_at == now
