"""A database with all migrations applied, made once for the present state of the code; every worker has a copy of it.

To migrate took each worker as long as twenty tests. What was migrated is kept from run to run, in .cache: on SQLite
the file, of PostgreSQL a dump.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from django.db import connection

from tests.private_servers import POSTGRESQL

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".cache" / "migrated"
MIGRATED_BY = ("*_app/**/*.py", "config/*.py", "database/*.py", "web/rest/**/*.py", "uv.lock")
"""Files that what `migrate` writes may depend on: migrations, what they import, and models, for permissions."""


def copy_migrated_file(target: Path) -> None:
    """Put a migrated SQLite database there."""
    with _one_at_a_time(KEPT):
        original = KEPT / f"{_digest()}.sqlite3"
        if not original.exists():
            for outdated in KEPT.glob("*.sqlite3"):
                outdated.unlink()
            _make(original)
        shutil.copyfile(original, target)


def _make(original: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "motley.sqlite3")
        _migrate(f"sqlite:///{made}")
        shutil.move(made, original)


def copy_migrated_database(name: str, *, shared: Path) -> None:
    """Make a PostgreSQL database of that name on the server of the tests; workers of a run share a folder."""
    columns = connection.settings_dict
    original = f"{columns['NAME']}_migrated"
    with _one_at_a_time(shared), connection._nodb_cursor() as cursor:
        if not (shared / original).exists():
            cursor.execute(f'DROP DATABASE IF EXISTS "{original}"')
            cursor.execute(f'CREATE DATABASE "{original}"')
            address = urlsplit(os.environ["MOTLEY_DATABASE"])
            fill_migrated(address._replace(path=f"/{original}").geturl())
            (shared / original).touch()
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}"')
        cursor.execute(f'CREATE DATABASE "{name}" TEMPLATE "{original}"')


def fill_migrated(address: str) -> None:
    """Give an empty PostgreSQL database what `migrate` writes, by a dump as soon as there is one."""
    with _one_at_a_time(KEPT):
        kept = KEPT / f"{_digest()}-{_release_of(address)}.sql"
        if kept.exists():
            _run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(kept), address)
            return
        _migrate(address)
        for outdated in KEPT.glob(f"*-{_release_of(address)}.sql"):
            outdated.unlink()
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            made = Path(folder, "dump.sql")
            _run("pg_dump", "--no-owner", "--file", str(made), address)
            shutil.move(made, kept)


def _release_of(address: str) -> int:
    with psycopg.connect(address) as opened:
        return opened.info.server_version


def _run(program: str, *words: str) -> None:
    done = subprocess.run([str(POSTGRESQL / program), *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _migrate(address: str) -> None:
    """As an administrator does; this process's Django goes on with its own database."""
    with tempfile.TemporaryDirectory() as var:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0", "--skip-checks"],
            env=os.environ | {"MOTLEY_DATABASE": address, "MOTLEY_VAR": var},
            check=False, capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def _digest() -> str:
    files = sorted({path for pattern in MIGRATED_BY for path in ROOT.glob(pattern)})
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
