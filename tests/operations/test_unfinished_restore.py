"""A restore that is run again waits for the leases that the first one knew: the database of before is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django import Settings

from connections_app.agents.after_restore import UNKNOWN_ATTEMPTS
from operations.unfinished_restore import (
    MachinesBefore,
    forget_unfinished_restore,
    note_unfinished_restore,
    unfinished_restore,
)

A_BACKUP_BEFORE_ITS_MACHINE_JOINED = """
from datetime import timedelta
from django.core.management import call_command
from django.utils import timezone
from cluster_app.models import Engine
from connections_app.models import Agent
from jobs_app.code.storage import code_root
call_command("migrate", verbosity=0)
(code_root() / "1").mkdir(parents=True)
(code_root() / "1" / f"{'0' * 64}.tar.gz").write_bytes(b"code")
call_command("backup", "a.motley")
later, engine = timezone.now() + timedelta(hours=1), Engine.objects.create(name="desk", kind="agent")
Agent.objects.create(name="desk", digest="0", engine=engine, join_expires_at=later, joined_at=later, heard_at=later)
print(code_root())
"""
NEWEST = """
from django.db import connection
with connection.cursor() as cursor:
    print(cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs_app_attempt'").fetchall())
"""


@pytest.mark.thorough
def test_a_restore_after_one_that_was_aborted_waits_for_machines_that_only_that_one_knew(tmp_path: Path) -> None:
    """However long the test takes: the machine is heard an hour later than it begins."""
    place = {"MOTLEY_VAR": str(tmp_path), "MOTLEY_DATABASE": f"sqlite:///{tmp_path / 'motley.sqlite3'}"}

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), *words],
            env=os.environ | place | {"MOTLEY_AGENT_LEASE_S": "5"}, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    made = manage("shell", "-v", "0", "-c", A_BACKUP_BEFORE_ITS_MACHINE_JOINED)
    assert made.returncode == 0, made.stderr
    code = Path(made.stdout.split()[-1])
    code.rename(code.with_name("away"))
    code.touch()  # archives of code cannot be written
    aborted = manage("restore", "a.motley")
    assert (aborted.returncode, "FileExistsError" in aborted.stderr or "NotADirectory" in aborted.stderr) == (1, True)
    code.unlink()
    done = manage("restore", "a.motley")
    assert "Start the service" in done.stdout, done.stderr
    assert "Machines that joined stop their jobs by themselves: waiting" in done.stdout
    assert str(UNKNOWN_ATTEMPTS) in manage("shell", "-v", "0", "-c", NEWEST).stdout
    assert not list(tmp_path.glob("*unfinished*"))


@pytest.mark.parametrize("damaged", ["", "[]", '{"of": "another version"}'])
def test_what_a_restore_knew_is_kept_until_it_has_ended(tmp_path: Path, settings: Settings, damaged: str) -> None:
    settings.VAR_DIR, settings.MOTLEY_AGENT_LEASE_S = tmp_path, 100
    assert unfinished_restore() is None
    note_unfinished_restore(known := MachinesBefore(7.5, had_joined=False))
    assert unfinished_restore() == known
    (file,) = tmp_path.iterdir()
    file.write_text(damaged)
    assert unfinished_restore() == MachinesBefore(125.0, had_joined=True)
    forget_unfinished_restore()
    forget_unfinished_restore()
    assert unfinished_restore() is None
