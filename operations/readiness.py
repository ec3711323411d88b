"""Readiness of this process: the database answers and can be written, migrations are applied, the broker answers."""

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from database.damage import is_damage, is_noted

if TYPE_CHECKING:
    from redis import Redis

PATIENCE_S = 1.0
LEAST_FREE_BYTES = 1 << 20
"""With less, SQLite may not finish a transaction."""


def what_is_missing() -> dict[str, str]:
    """Part → its fault and the remedy; empty if ready."""
    found = {name: look() for name, look in PARTS.items()}
    return {name: fault for name, fault in found.items() if fault}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return "The database is damaged." if is_damage(error) else "The database does not answer."
    return "The database is damaged." if is_noted() else ""


def _disk() -> str:
    """Whether SQLite can write: a query that only reads does not tell. PostgreSQL has a disk of its own."""
    if connection.vendor != "sqlite":
        return ""
    disk = os.statvfs(settings.VAR_DIR)
    if disk.f_flag & os.ST_RDONLY:
        return "The disk of the service's data cannot be written to."
    return "The disk of the service's data is full." if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES else ""


def _migrations() -> str:
    try:
        return "" if _are_applied() else "The database has older tables: run manage.py migrate."
    except DatabaseError:
        return "The database does not answer."


def _broker() -> str:
    if not settings.MOTLEY_HAS_BROKER:
        return ""
    from redis import RedisError  # only a broker needs it

    try:
        _redis().ping()
    except RedisError:
        return "Redis does not answer."
    return ""


PARTS: dict[str, Callable[[], str]] = {
    "database": _database,
    "migrations": _migrations,
    "disk": _disk,
    "broker": _broker,
}


def _are_applied() -> bool:
    """Whether all migrations are applied; cached once true, because reading them is slow."""
    if not _seen_applied:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return False
        _seen_applied.append(True)
    return True


_seen_applied: list[bool] = []


def redis_version() -> str:
    """Version of the broker; empty: there is none, or it does not answer."""
    if not settings.MOTLEY_HAS_BROKER:
        return ""
    from redis import RedisError  # only a broker needs it

    try:
        return str(_redis().info("server")["redis_version"])
    except RedisError:
        return ""


@cache
def _redis() -> "Redis":
    from redis import Redis

    return Redis.from_url(settings.CELERY_BROKER_URL, socket_connect_timeout=PATIENCE_S, socket_timeout=PATIENCE_S)
