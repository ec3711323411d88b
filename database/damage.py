"""A damaged SQLite database: how it is told from one that is busy, and a note for all processes of the service."""

from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

SIGNS = ("malformed", "not a database")
"""Of SQLite's errors SQLITE_CORRUPT and SQLITE_NOTADB, of which Django gives the texts alone."""
REMEDY = "The database is damaged. Stop the service, and restore a backup: manage.py restore --replace FILE."


def is_damage(error: BaseException) -> bool:
    return isinstance(error, DatabaseError) and any(sign in str(error) for sign in SIGNS)


def note_damage() -> None:
    """Leave a note, which other processes see; a later start of the service removes it."""
    _note().touch()


def is_noted() -> bool:
    """Whether a process has found damage: a query that reads no damaged page finds none."""
    return _note().exists()


def forget_damage() -> None:
    _note().unlink(missing_ok=True)


def _note() -> Path:
    path: Path = settings.VAR_DIR / "database-damaged"
    return path
