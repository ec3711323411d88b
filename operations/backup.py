"""Backups: one file with the database, the archives of code and of jobs, and a manifest."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    Both may change meanwhile, so the manifest, with the digests of what was packed, is the last member.
    """
    with TemporaryDirectory(dir=settings.VAR_DIR, prefix=UNFINISHED) as folder:
        dump = Path(folder) / DATABASE
        dump_database(dump)
        manifest = _manifest()
        written = Path(folder) / MANIFEST
        paths = {
            **{f"{CODE}/{path.relative_to(code_root())}": path for path in sorted(code_root().glob("*/*.tar.gz"))},
            **{f"{JOBS}/{path.relative_to(settings.MOTLEY_ARCHIVE_ROOT)}": path for path in archive_files()},
        }
        with _packing(file) as tar:
            manifest["members"][DATABASE] = _pack(dump, DATABASE, tar)
            for name, path in paths.items():
                with suppress(FileNotFoundError):  # deleted meanwhile, as code that nothing needs
                    manifest["members"][name] = _pack(path, name, tar)
            written.write_text(json.dumps(manifest, indent=1))
            _pack(written, MANIFEST, tar)
    return manifest


def unfinished_backups() -> Iterator[Path]:
    """Folders of backups that are being written or restored, or that a killed process has left: whole databases.

    In a container whose disk is read-only they are beside the archive (docs/full-stack.md).
    """
    for folder in {settings.VAR_DIR, settings.MOTLEY_ARCHIVE_ROOT}:
        yield from folder.glob(f"{UNFINISHED}*")


def note_backup(manifest: Manifest, file: str) -> None:
    """Put the backup on the audit list, where the page Site finds the last one."""
    archives = len(manifest["members"]) - 1
    text = f"{manifest['database']} database and {archives} archives"
    note(Action.BACKUP, actor=None, target="" if file == "-" else str(Path(file).absolute()), message=text)


def last_backup() -> AuditEntry | None:
    return AuditEntry.objects.filter(action=Action.BACKUP).first()


@contextmanager
def _packing(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """A compressed tar file in which two links to a file are two files."""
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3) as packed,
        tarfile.open(fileobj=packed, mode="w|", dereference=True) as tar,
    ):
        yield tar


def _pack(path: Path, name: str, tar: tarfile.TarFile) -> str:
    """Add the file, and return the digest of what was added: another may have taken its place on the disk by then."""
    with path.open("rb") as file:
        read = _Digested(file)
        tar.addfile(_anonymous(tar.gettarinfo(arcname=name, fileobj=file)), read)
    return read.sha256.hexdigest()


class _Digested(io.RawIOBase):
    """A file with the SHA-256 of what was read of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self.file.read(size)
        self.sha256.update(data)
        return data


def _manifest() -> Manifest:
    """Of a backup without members yet."""
    applied = MigrationRecorder(connection).applied_migrations()
    return Manifest(
        format=FORMAT,
        version=settings.MOTLEY_VERSION,
        database=connection.vendor,
        taken_at=timezone.now().isoformat(),
        migrations=sorted(f"{app}.{name}" for app, name in applied),
        members={},
    )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member
