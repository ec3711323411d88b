"""Files of a job's own folder, as its team reads them: no link is followed, and nothing but regular files is opened.

A path is walked folder by folder by descriptors (openat, O_NOFOLLOW), so that a job that changes its folder meanwhile
leads nobody out of it.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from engines.protocol import EngineError, JobFile, NoSuchFile, OpenedFile

FOLDERS = ("work", "checkpoints")
"""Of a job: its working folder and what it saved."""
MOST_LISTED = 2000
MOST_BYTES = 1 << 50
"""Of a file, and of a folder of a job: no server has a disk as large."""
MOST_READ = 100_000
"""Names of a folder that are looked at: a job may make tens of millions, which would fill the memory of an agent."""
NOT_ALLOWED = (
    "The account of the web server may not read the folder of the job: read its files in a session (`motley exec`), or "
    "have the job write them to storage."
)
LATEST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Latest modification time that is shown. A job can set any, also one that Python cannot represent as a date."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a writer does not block


def list_folder(job: Path, path: str) -> list[JobFile]:
    """Content of a folder of the job, folders first, the first `MOST_LISTED` by name; of the empty path, its roots.

    Of a folder with very many names, the first of those that are read.
    """
    parts = _parts(path)
    if not parts:
        return [_described(name, os.lstat(job / name)) for name in FOLDERS if (job / name).is_dir()]
    with _folder(job, parts) as descriptor:
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_READ))[:MOST_LISTED]
        found = [_described(name, status) for name, status in _statuses(descriptor, names)]
    return sorted(found, key=lambda one: (not one.is_folder, one.name))


def open_file(job: Path, path: str) -> OpenedFile:
    """Open a regular file of the job."""
    parts = _parts(path)
    if len(parts) < 2:
        raise NoSuchFile
    with _folder(job, parts[:-1]) as folder:
        try:
            descriptor = os.open(parts[-1], FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            raise NoSuchFile from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or _is_foreign(status, os.fstat(folder)):
            os.close(descriptor)
            raise NoSuchFile
        return OpenedFile(descriptor, status.st_size)


def _parts(path: str) -> list[str]:
    """Names on the path; raises `NoSuchFile` for one that leads elsewhere than down."""
    parts = [part for part in path.split("/") if part]
    if any(part in {".", ".."} or "\0" in part for part in parts) or (parts and parts[0] not in FOLDERS):
        raise NoSuchFile
    return parts


@contextmanager
def _folder(job: Path, parts: Sequence[str]) -> Iterator[int]:
    """Descriptor of the folder that these names lead to."""
    descriptor = -1
    try:
        descriptor = os.open(job, FOLDER_FLAGS)
        for part in parts:
            below = os.open(part, FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise EngineError(NOT_ALLOWED) if isinstance(error, PermissionError) else NoSuchFile from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _statuses(folder: int, names: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    for name in names:
        try:
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # deleted meanwhile
            continue


def _described(name: str, status: os.stat_result) -> JobFile:
    mode = status.st_mode
    shown = name.encode(errors="surrogateescape").decode(errors="replace")
    modified_at = datetime.fromtimestamp(min(max(status.st_mtime, 0.0), LATEST_S), UTC)
    return JobFile(shown, stat.S_ISDIR(mode), stat.S_ISREG(mode), status.st_size, modified_at)


def _is_foreign(status: os.stat_result, folder: os.stat_result) -> bool:
    """Whether the file may be a hard link to a file of another account."""
    return status.st_nlink > 1 and status.st_uid != folder.st_uid
