"""Content types and permissions come back by two statements after a test that commits; Django looks for each of them.

`flush` empties the tables and emits `post_migrate`, whose receivers ask for the rows of every app: nine tenths of what
emptying costs on SQLite. The first time they do so; their rows are kept, and written as they were each later time.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.core.management.sql import emit_post_migrate_signal


class KeptRows:
    """What receivers of `post_migrate` write: `auth` and `contenttypes` have the only ones."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, list[Any]]] = []

    def write(self, verbosity: int, interactive: bool, db: str, **more: Any) -> None:
        if not self.rows:
            emit_post_migrate_signal(verbosity, interactive, db, **more)
            self.rows = [(model, list(model._base_manager.using(db))) for model in (ContentType, Permission)]
            return
        for model, rows in self.rows:
            model._base_manager.using(db).bulk_create(rows)


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "emit_post_migrate_signal", KeptRows().write)
        yield
