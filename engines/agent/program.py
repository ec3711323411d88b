"""Program of the agent on a server: a folder that its digest names, and the link `current` to the one that is used.

Each release lies beside the others, because supervisors of running jobs go on with the one that started them.
"""

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple, Self
from zipfile import ZipFile

from engines.attempt_files import sync_folder

DIGITS = 12
DIGEST = re.compile(rf"[0-9a-f]{{{DIGITS}}}")
RELEASE = "release.txt"
"""File of the archive with the version of the service that made it."""
FROM_SOURCES = "sources"


class Program(NamedTuple):
    """The program that runs."""

    prefix: Path
    """Folder of all releases on this server."""
    digest: str
    """Empty: it runs from sources, and is not changed by the service."""
    release: str

    @classmethod
    def own(cls) -> Self:
        folder = Path(__file__).resolve().parents[2]
        if not DIGEST.fullmatch(folder.name) or not (folder / RELEASE).exists():
            return cls(folder.parent, "", FROM_SOURCES)
        return cls(folder.parent, folder.name, (folder / RELEASE).read_text().strip())


def unpack(archive: Path, prefix: Path) -> Path:
    """Unpack the archive into a folder that its content names, and return this folder.

    It has its name when all of it is on the disk: a power loss could leave files without content. One that is whole
    is left as it is, because supervisors may run in it.
    """
    folder = prefix / digest_of(archive)
    with ZipFile(archive) as packed:
        if not _is_whole(folder, packed):
            _unpack(packed, folder)
    return folder


def _is_whole(folder: Path, packed: ZipFile) -> bool:
    files = [(folder / name, packed.read(name)) for name in packed.namelist() if not name.endswith("/")]
    return all(path.is_file() and path.read_bytes() == content for path, content in files)


def _unpack(packed: ZipFile, folder: Path) -> None:
    beside = folder.with_name(f".{folder.name}")
    for rest in (beside, folder):  # of an attempt that was cut short
        shutil.rmtree(rest, ignore_errors=True)
    beside.mkdir(parents=True)
    packed.extractall(beside)
    for path, _, names in os.walk(beside):
        for name in names:
            _sync(Path(path) / name)
        sync_folder(Path(path))
    beside.rename(folder)
    sync_folder(folder.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def digest_of(archive: Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()[:DIGITS]


def use(folder: Path) -> Path:
    """Have `current` lead to this folder; returns the link."""
    current, beside = folder.parent / "current", folder.parent / ".current"
    beside.unlink(missing_ok=True)
    beside.symlink_to(folder)
    beside.replace(current)
    sync_folder(current.parent)
    return current
