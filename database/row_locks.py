"""Shared locks of rows, which Django's `select_for_update` does not have."""

from typing import TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def shared(rows: QuerySet[Row]) -> list[Row]:
    """The rows: nobody deletes them, or locks them by `select_for_update()`, before the transaction ends.

    FOR KEY SHARE on PostgreSQL, as its foreign keys have it: others may share them, and lock them with `no_key=True`.
    On SQLite a transaction has the whole database.
    """
    if connection.vendor != "postgresql":
        return list(rows)
    statement, values = rows.query.sql_with_params()
    return list(rows.model._base_manager.raw(f"{statement} FOR KEY SHARE", values))
