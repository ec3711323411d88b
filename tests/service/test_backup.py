"""Backups of the embedded service, and what is no backup that can be restored."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from operations.backup import write_backup
from operations.restore import NotRestored, _unpacked, restore_backup
from tests.backup_scenario import go_back_to_a_backup
from tests.service.running_service import Service
from tests.service_lab import Lab


def test_a_service_goes_back_to_its_backup_and_no_job_is_run_twice(service: Service, tmp_path: Path) -> None:
    service.declare(a100=2)
    go_back_to_a_backup(service, tmp_path, stop=service.kill, start=service.start)


@pytest.fixture
def backup(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file of the right form: the test's own transaction cannot be dumped."""
    monkeypatch.setattr("operations.backup.dump_database", lambda path: path.write_bytes(b"a dump"))
    path = tmp_path / "motley.backup"
    with path.open("wb") as file:
        write_backup(file)
    return path


def rewrite(path: Path, *, manifest: dict[str, Any] | None = None, database: bytes = b"") -> None:
    with tarfile.open(path) as tar:
        members = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}
    if manifest:
        members["manifest.json"] = json.dumps(json.loads(members["manifest.json"]) | manifest).encode()
    members["database"] = database or members["database"]
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def why_not(path: Path) -> str:
    with pytest.raises(NotRestored) as error:
        restore_backup(path, replace=True)
    return str(error.value)


def test_a_changed_file_is_refused(backup: Path) -> None:
    rewrite(backup, database=b"another dump")
    assert "is damaged: database is not what was written" in why_not(backup)


@pytest.mark.parametrize("content", [b"", b"no archive", gzip.compress(b"no archive")], ids=["empty", "text", "gzip"])
def test_what_is_no_backup_is_refused(backup: Path, content: bytes) -> None:
    backup.write_bytes(content)
    assert "is no whole backup of Motley" in why_not(backup)


def test_a_file_that_was_cut_off_is_refused(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])
    assert "is no whole backup of Motley" in why_not(backup)


def test_a_backup_of_a_newer_version_is_refused_with_that_version(backup: Path) -> None:
    rewrite(backup, manifest={"version": "9.1", "migrations": ["jobs_app.9001_later"]})
    assert why_not(backup) == "The backup is of version 9.1, which is newer (jobs_app.9001_later): install that one."


def test_a_backup_of_another_kind_of_database_is_refused(backup: Path) -> None:
    other = "sqlite" if connection.vendor == "postgresql" else "postgresql"
    rewrite(backup, manifest={"database": other})
    assert f"The backup is of {other}, this service uses {connection.vendor}" in why_not(backup)


class Meanwhile(io.BytesIO):
    """A file; something is done when the first of it is written."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.acts = [act]

    def write(self, data: Any, /) -> int:
        while self.acts:
            self.acts.pop()()
        return super().write(data)


@pytest.fixture
def month(settings: Settings, tmp_path: Path) -> Path:
    """A folder of the archive of jobs."""
    settings.MOTLEY_ARCHIVE_ROOT = tmp_path / "archive"
    month = tmp_path / "archive" / "2026-03"
    month.mkdir(parents=True)
    return month


def restored(file: io.BytesIO, path: Path) -> dict[str, bytes]:
    """Archives of jobs in the backup, as a restore finds them."""
    write_backup(file)
    path.write_bytes(file.getvalue())
    with _unpacked(path) as (folder, _):
        return {found.name: found.read_bytes() for found in folder.glob("jobs/*/*")}


def test_a_backup_is_whole_whatever_becomes_of_the_archives_meanwhile(backup: Path, month: Path) -> None:
    changed, gone = month / "a.jsonl.gz", month / "b.jsonl.gz"
    changed.write_bytes(b"as it was")
    gone.write_bytes(b"nothing needs it")

    def change() -> None:
        (month / "new").write_bytes(b"written anew, by another name of the job")
        (month / "new").replace(changed)
        gone.unlink()

    assert restored(Meanwhile(change), backup) == {changed.name: changed.read_bytes()}


def test_two_links_to_a_file_are_two_files_of_a_backup(backup: Path, month: Path) -> None:
    """As a program makes them that looks for duplicates."""
    (month / "a.jsonl.gz").write_bytes(b"both")
    os.link(month / "a.jsonl.gz", month / "b.jsonl.gz")
    assert restored(io.BytesIO(), backup) == {"a.jsonl.gz": b"both", "b.jsonl.gz": b"both"}


def test_no_file_is_overwritten(backup: Path) -> None:
    with pytest.raises(CommandError, match=r"No backup was written\. .* exists"):
        call_command("backup", str(backup))
