"""A test that commits empties all tables but those of content types and permissions, which no test changes.

`flush` empties these, too, and emits `post_migrate`, whose receivers ask for the rows of every app and write them
again: nine tenths of what emptying costs on SQLite. `auth` and `contenttypes` have the only receivers that write.
"""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import Style
from django.core.management.commands import flush
from django.db.backends.base.base import BaseDatabaseWrapper

KEPT = {model._meta.db_table for model in (ContentType, Permission)}


def sql_flush(
    style: Style, connection: BaseDatabaseWrapper, reset_sequences: bool = True, allow_cascade: bool = False
) -> list[str]:
    """Statements that empty the tables of all models but those."""
    tables = {*connection.introspection.django_table_names(only_existing=True, include_views=False)} - KEPT
    return connection.ops.sql_flush(style, sorted(tables), reset_sequences=reset_sequences, allow_cascade=allow_cascade)


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield
