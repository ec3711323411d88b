"""A database with all migrations applied, made once for the present state of the code; every worker has a copy of it.

To migrate took each worker as long as twenty tests. On SQLite the copy's original is kept from run to run, in .cache.
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

from django.db import connection

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".cache" / "migrated"
MIGRATED_BY = ("*_app/**/*.py", "config/*.py", "database/*.py", "rest/**/*.py", "uv.lock")
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
            _migrate(address._replace(path=f"/{original}").geturl())
            (shared / original).touch()
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}"')
        cursor.execute(f'CREATE DATABASE "{name}" TEMPLATE "{original}"')


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
