"""Dumps of the whole database: SQLite by its online backup, PostgreSQL by pg_dump, pg_restore and psql."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from django.db import DatabaseError, connection
from django.db.backends.postgresql.client import DatabaseClient

from database.damage import is_damage

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian keeps the programs of each version of PostgreSQL."""
EMPTY = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('DROP TABLE public.%I CASCADE', name);
  END LOOP;
END $$;
"""
"""Also drops tables that the dump does not have, as those of a newer version."""
PATIENCE = "-c lock_timeout=30s"
"""An idle connection may hold a lock on a table: fail then, and do not wait for ever."""


class DumpFailed(Exception):
    """The database could not be dumped or loaded; it is as it was."""


def dump_database(target: Path) -> None:
    """Write a consistent snapshot of the database, while others may write."""
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        with closing(sqlite3.connect(target)) as copy:
            connection.connection.backup(copy)
    else:
        _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={target}")


def load_database(source: Path) -> None:
    """Replace the whole database by a dump, in one transaction."""
    if connection.vendor == "sqlite":
        _load_sqlite(source)
    else:
        connection.close()
        script = _output([_program("pg_restore"), "--no-owner", "--no-privileges", "--file=-", str(source)], {})
        at_once = ("--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null")
        _run("psql", *at_once, text=EMPTY + script)
    connection.close()


def empty_database() -> None:
    """Drop all tables."""
    if connection.vendor == "sqlite":
        _load_sqlite(":memory:")
    else:
        with connection.cursor() as cursor:
            cursor.execute(EMPTY)
    connection.close()


def _load_sqlite(source: Path | str) -> None:
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        if not is_damage(error):
            raise
        _set_aside(Path(connection.settings_dict["NAME"]))
        connection.ensure_connection()
    try:
        with closing(sqlite3.connect(source)) as dump:
            dump.backup(connection.connection)
    except sqlite3.Error as error:
        raise DumpFailed(f"SQLite said: {error}.") from error


def _set_aside(file: Path) -> None:
    """Rename a file that is no database, with those beside it; a new one takes its place."""
    for path in (file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))):
        if path.exists():
            path.replace(path.with_name(f"{path.name}.damaged"))


def _run(program: str, *options: str, text: str = "") -> None:
    """Run a program of PostgreSQL on our database; its password goes by the environment."""
    (_, *place, name), env = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, [])
    command = [_program(program), *options, *place, f"--dbname={name}"]
    _output(command, {"PGOPTIONS": PATIENCE, **(env or {})}, text=text)


def _output(command: list[str], env: dict[str, str], *, text: str = "") -> str:
    done = subprocess.run(  # noqa: S603 - words of ours and of the settings, through no shell
        command, input=text, env=os.environ | env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DumpFailed(f"{Path(command[0]).name} said: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _program(name: str) -> str:
    """Path of a program of PostgreSQL, of the newest version that is installed."""
    newest = max((path for path in DEBIAN.glob(f"*/bin/{name}")), key=_version, default=None)
    found = str(newest) if newest is not None else shutil.which(name)
    if found is None:
        raise DumpFailed(f"{name} was not found: install the package postgresql-client.")
    return found


def _version(path: Path) -> float:
    """Version of PostgreSQL by the path of its program: 15 for /usr/lib/postgresql/15/bin/psql."""
    return float(path.parents[1].name)
