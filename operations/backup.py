"""Backups: one file with the database, the archives of code and of jobs, and a manifest."""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypedDict

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from audit_app.models import Action, AuditEntry
from audit_app.services import note
from database.dump import dump_database
from jobs_app.code.storage import code_root
from jobs_app.job_archive import archive_files

FORMAT = 1
UNFINISHED = ".backup-"
MANIFEST, DATABASE, CODE, JOBS = "manifest.json", "database", "code", "jobs"


class Manifest(TypedDict):
    """Kind and version of the file, and the SHA-256 of its members."""

    format: int
    version: str
    database: str
    taken_at: str
    migrations: list[str]
    members: dict[str, str]


def write_backup(file: IO[bytes]) -> Manifest:
    """Write a backup of a service that may run.

    Archives of code come after the database, which refers to them; so does that of jobs, to which some may have moved.
    """
    with TemporaryDirectory(dir=settings.VAR_DIR, prefix=UNFINISHED) as folder:
        dump = Path(folder) / DATABASE
        dump_database(dump)
        paths = {
            DATABASE: dump,
            **{f"{CODE}/{path.relative_to(code_root())}": path for path in sorted(code_root().glob("*/*.tar.gz"))},
            **{f"{JOBS}/{path.relative_to(settings.MOTLEY_ARCHIVE_ROOT)}": path for path in archive_files()},
        }
        manifest = _manifest({name: digest_of(path) for name, path in paths.items()})
        written = Path(folder) / MANIFEST
        written.write_text(json.dumps(manifest, indent=1))
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as packed:
            _pack({MANIFEST: written, **paths}, packed)
    return manifest


def unfinished_backups() -> Iterator[Path]:
    """Folders of backups that are being written or restored, or that a killed process has left: whole databases."""
    var: Path = settings.VAR_DIR
    return var.glob(f"{UNFINISHED}*")


def note_backup(manifest: Manifest, file: str) -> None:
    """Put the backup on the audit list, where the page Site finds the last one."""
    archives = len(manifest["members"]) - 1
    text = f"{manifest['database']} database and {archives} archives"
    note(Action.BACKUP, actor=None, target="" if file == "-" else str(Path(file).absolute()), message=text)


def last_backup() -> AuditEntry | None:
    return AuditEntry.objects.filter(action=Action.BACKUP).first()


def _pack(paths: Mapping[str, Path], file: gzip.GzipFile) -> None:
    with tarfile.open(fileobj=file, mode="w|") as tar:
        for name, path in paths.items():
            tar.add(path, name, filter=_anonymous)


def _manifest(members: dict[str, str]) -> Manifest:
    applied = MigrationRecorder(connection).applied_migrations()
    return Manifest(
        format=FORMAT,
        version=settings.MOTLEY_VERSION,
        database=connection.vendor,
        taken_at=timezone.now().isoformat(),
        migrations=sorted(f"{app}.{name}" for app, name in applied),
        members=members,
    )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member
