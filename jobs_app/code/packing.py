"""Archive of files that a browser uploads: the same files give the same bytes, sorted and without times and owners."""

import gzip
import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile

from jobs_app.code.inspection import LARGEST_BYTES
from jobs_app.code.storage import store
from jobs_app.errors import InvalidSpec
from jobs_app.models import CodeArchive, Team

READ_ONLY, RUNS = 0o644, 0o755
LEFT_OUT = (".git/", "__pycache__/")
"""Folders that are not packed, wherever they are."""


def store_files(files: "Mapping[str, UploadedFile[Any]]", *, team: Team, user: User) -> CodeArchive:
    """Store uploaded files by their paths as an archive of the team; a single gzipped tar as it is."""
    kept = {path: file for path, file in sorted(files.items()) if not any(f"/{out}" in f"/{path}" for out in LEFT_OUT)}
    if not kept:
        raise InvalidSpec.at("/code", "no_files", "There are no files to upload.")
    if sum(file.size or 0 for file in kept.values()) > LARGEST_BYTES:
        text = f"The files have more than {LARGEST_BYTES >> 20} MiB: data belongs on storage of the cluster."
        raise InvalidSpec.at("/code", "too_large", text)
    (path, first), *others = kept.items()
    if not others and path.endswith((".tar.gz", ".tgz")):
        return store(first, _digest(first), team=team, user=user)
    with _packed(kept) as archive:
        return store(archive, _digest(archive), team=team, user=user)


@contextmanager
def _packed(files: "Mapping[str, UploadedFile[Any]]") -> Iterator[IO[bytes]]:
    with TemporaryFile() as file:
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path, content in files.items():
                archive.addfile(_member(path, content), content)
        yield file


def _member(path: str, content: "UploadedFile[Any]") -> tarfile.TarInfo:
    """Browsers say nothing of modes: what begins with `#!` may be run."""
    member = tarfile.TarInfo(path)
    content.seek(0)
    member.size, member.mode = content.size or 0, RUNS if content.read(2) == b"#!" else READ_ONLY
    content.seek(0)
    return member


def _digest(file: Any) -> str:
    """SHA-256 of the file, which is then at its begin."""
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(1024 * 1024):
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()
