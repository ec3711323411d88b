"""A site of 0.1 comes over by a backup that 0.1 has written: every kind of row, on both databases.

The backups have a row of each of 0.1's models. They are small, and cannot be written by the present code.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from connections_app.agents.after_restore import UNKNOWN_ATTEMPTS
from operations.restore_from_0_1 import MOVED, name_in_0_1

BACKUPS = Path(__file__).parent / "backups"
SINCE = {"personalsettings", "recipe", "recipeversion", "recurringjob", "recurringrun", "siteannouncement"} | {
    "sweep",
    "sweeptrial",
    "checkpointhistory",
}
"""Models of jobs_app that 0.1 did not have."""
COUNTS = """
import json
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from accounting_app.models import LedgerCoverage
from jobs_app.models import Attempt
executor = MigrationExecutor(connection)
print(json.dumps({
    "not applied": [str(one) for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())],
    "rows": {model._meta.db_table: model._base_manager.count() for model in apps.get_models(include_auto_created=True)},
    "entry": LogEntry.objects.get().content_type.app_label,
    "may": User.objects.get().groups.get().permissions.get().content_type.app_label,
    "until": LedgerCoverage.objects.get().until.isoformat(),
    "next": Attempt.objects.create(
        **{f.name: getattr(Attempt.objects.get(), f.name) for f in Attempt._meta.concrete_fields if not f.primary_key}
        | {"state": "ended", "outcome": "failed", "ended_at": Attempt.objects.get().claimed_at, "number": 2}
    ).pk,
}))
"""


class Site:
    """An installation of this version, driven by its commands."""

    def __init__(self, var: Path, database: str) -> None:
        short = {"MOTLEY_AGENT_LEASE_S": "5"}  # `restore` waits for longer than it, for a machine had joined
        self.environment = os.environ | short | {"MOTLEY_VAR": str(var), "MOTLEY_DATABASE": database}

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), *words],
            env=self.environment, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, db: None) -> Site:
    if connection.vendor == "sqlite":
        return Site(tmp_path, f"sqlite:///{tmp_path / 'motley.sqlite3'}")
    with connection._nodb_cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS from_0_1")
        cursor.execute("CREATE DATABASE from_0_1")
    address, _, _ = os.environ["MOTLEY_DATABASE"].rpartition("/")
    return Site(tmp_path, f"{address}/from_0_1")


def test_every_row_of_a_backup_of_0_1_is_there_after_its_restore(site: Site, tmp_path: Path) -> None:
    """On SQLite in the place of a file that is no database, which is set aside."""
    if connection.vendor == "sqlite":
        (tmp_path / "motley.sqlite3").write_bytes(b"this is no database" * 500)
    done = site.manage("restore", "--replace", str(BACKUPS / f"backup-0.1-{connection.vendor}.motley"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "motley.sqlite3.damaged").exists() == (connection.vendor == "sqlite")
    found = json.loads(site.manage("shell", "-v", "0", "-c", COUNTS).stdout)
    assert {table for table, count in found["rows"].items() if not count} == {f"jobs_app_{name}" for name in SINCE}
    assert (found["entry"], found["may"]) == ("connections_app", "connections_app")
    assert found["until"].startswith("2026-11-20T12:00")
    assert found["next"] == 2 + UNKNOWN_ATTEMPTS
    assert found["not applied"] == []


def test_a_database_of_0_1_is_not_migrated(tmp_path: Path) -> None:
    with tarfile.open(BACKUPS / "backup-0.1-sqlite.motley") as tar:
        (tmp_path / "motley.sqlite3").write_bytes(tar.extractfile("database").read())
    refused = Site(tmp_path, f"sqlite:///{tmp_path / 'motley.sqlite3'}").manage("migrate")
    assert refused.returncode
    assert "manage.py restore --replace FILE" in refused.stderr


def test_tables_have_the_name_of_their_app_of_before() -> None:
    assert name_in_0_1("jobs_app_gpuclaim") == "scheduler_app_gpuclaim"
    assert name_in_0_1("jobs_app_job") == "jobs_app_job"
    assert len({model for models in MOVED.values() for model in models}) == sum(map(len, MOVED.values()))
