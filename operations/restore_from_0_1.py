"""Restore a backup of 0.1: its rows are copied, table by table, into the tables of this version.

0.1 had three apps with a long history of migrations; each app has one first migration since. PostgreSQL has the old
tables in a schema of their own meanwhile, SQLite in the file of the dump, which is attached.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from database.dump import empty_database, load_database

NEWEST = frozenset(
    {
        "audit_app.0001_initial",
        "cluster_app.0028_ends_by_retirement_and_sleep",
        "jobs_app.0056_comments",
        "scheduler_app.0036_minimum_run_time",
    }
)
"""Newest migrations of 0.1."""
SECOND = "scheduler_app.0002_pruned_at"
"""A migration of 0.1 that no later version has: their names differ, though their numbers may not."""
MOVED = {
    "accounting_app": (
        *("dailyusage", "durationforecast", "durationmodel", "gpuminute", "gputypeusage", "nodeuse", "quotahour"),
        *("retentionrun", "sleepadvice", "teambacklog", "teammonth", "teamusage"),
    ),
    "connections_app": ("agent", "agentattempt", "engineprobe"),
    "insight_app": (
        *("deadlineforecast", "forecastrun", "jobforecast", "keptforecast", "labrun", "labtrace", "policyguard"),
    ),
    "jobs_app": ("gpuclaim",),
}
"""Models that belonged to `scheduler_app`, by the app that they belong to now."""
OLD = "motley_0_1"
"""Schema of PostgreSQL, or attached database of SQLite, that has the tables of 0.1."""
RECORDS = "django_migrations"


def is_of_0_1(migrations: frozenset[str]) -> bool:
    """Whether a backup with these migrations was taken by 0.1."""
    return SECOND in migrations


def is_complete(migrations: frozenset[str]) -> bool:
    """Whether that 0.1 was the last one, whose tables are known here."""
    return migrations >= NEWEST


def database_is_of_0_1() -> bool:
    """Whether the database has the tables of 0.1, which `migrate` does not bring to this version."""
    applied = MigrationRecorder(connection).applied_migrations()
    return is_of_0_1(frozenset(f"{app}.{name}" for app, name in applied))


def load_rows(dump: Path) -> None:
    """Replace the database by the rows of a dump of 0.1 in the tables of this version.

    They come into the tables of 0.2; `migrate`, which the caller applies, brings them on.
    """
    with _old_tables(dump):
        _make_tables_of_0_2()
        with transaction.atomic(), connection.cursor() as cursor:
            _copy_rows(cursor)
            _rename_content_types(cursor)
            _begin_ledgers(cursor)
            _continue_numbers(cursor)


def _make_tables_of_0_2() -> None:
    """Apply the first migration of each app of ours, and all of the others."""
    executor = MigrationExecutor(connection)
    ours = {app.label for app in apps.get_app_configs() if app.name.endswith("_app")}
    leaves = executor.loader.graph.leaf_nodes()
    executor.migrate([(app, "0001_initial" if app in ours else newest) for app, newest in leaves])


@contextmanager
def _old_tables(dump: Path) -> Iterator[None]:
    """The tables of the dump under the name OLD, beside an empty database."""
    if connection.vendor == "sqlite":
        empty_database()
        _execute(f"ATTACH DATABASE %s AS {OLD}", str(dump))
        yield
        _execute(f"DETACH DATABASE {OLD}")
    else:
        _execute(f"DROP SCHEMA IF EXISTS {OLD} CASCADE")
        load_database(dump)
        _execute(f"ALTER SCHEMA public RENAME TO {OLD}")
        _execute("CREATE SCHEMA public")
        yield
        _execute(f"DROP SCHEMA {OLD} CASCADE")


def _execute(statement: str, *values: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def _copy_rows(cursor: CursorWrapper) -> None:
    """Copy every table that 0.1 has too; what migrations wrote gives way. Foreign keys are checked at the end."""
    old = _columns_of_old_tables(cursor)
    tables = sorted(set(connection.introspection.table_names(cursor)) - {RECORDS})
    for table in tables:
        cursor.execute(f"DELETE FROM {_quoted(table)}")  # noqa: S608 - names of our tables
    for table in tables:
        columns = [column.name for column in connection.introspection.get_table_description(cursor, table)]
        source = name_in_0_1(table)
        names = ", ".join(_quoted(name) for name in columns if name in old.get(source, ()))
        if names:
            source_table = f"{OLD}.{_quoted(source)}"
            cursor.execute(f"INSERT INTO {_quoted(table)} ({names}) SELECT {names} FROM {source_table}")  # noqa: S608


def name_in_0_1(table: str) -> str:
    """Name that 0.1 had for this table."""
    for app, models in MOVED.items():
        if table in {f"{app}_{model}" for model in models}:
            return f"scheduler_app_{table.removeprefix(f'{app}_')}"
    return table


def _columns_of_old_tables(cursor: CursorWrapper) -> dict[str, set[str]]:
    if connection.vendor == "sqlite":
        statement = f"SELECT m.name, c.name FROM {OLD}.sqlite_master m, pragma_table_info(m.name, '{OLD}') c WHERE m.type = 'table'"  # noqa: S608, E501
    else:
        statement = f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{OLD}'"  # noqa: S608
    cursor.execute(statement)
    found: dict[str, set[str]] = {}
    for table, column in cursor.fetchall():
        found.setdefault(table, set()).add(column)
    return found


def _rename_content_types(cursor: CursorWrapper) -> None:
    """Let permissions and the administration's history follow their models to other apps."""
    for app, models in MOVED.items():
        for model in models:
            cursor.execute(
                "UPDATE django_content_type SET app_label = %s WHERE app_label = 'scheduler_app' AND model = %s",
                [app, model],
            )


def _begin_ledgers(cursor: CursorWrapper) -> None:
    """The end of the time that ledgers cover was a column of the lease of rounds."""
    cursor.execute(f"SELECT accrued_until FROM {OLD}.scheduler_app_schedulerlease WHERE id = 1")  # noqa: S608 - a constant
    for (until,) in cursor.fetchall():
        if until is not None:
            cursor.execute("INSERT INTO accounting_app_ledgercoverage (id, until) VALUES (1, %s)", [until])


def _continue_numbers(cursor: CursorWrapper) -> None:
    """Let sequences go on after the copied numbers; SQLite's do by themselves."""
    tables = connection.introspection.table_names(cursor)
    models = [model for model in apps.get_models(include_auto_created=True) if model._meta.db_table in tables]
    for statement in connection.ops.sequence_reset_sql(no_style(), models):
        cursor.execute(statement)


def _quoted(name: str) -> str:
    return str(connection.ops.quote_name(name))
