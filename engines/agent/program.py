"""Program of the agent on a server: a folder that its digest names, and the link `current` to the one that is used.

Each release lies beside the others, because supervisors of running jobs go on with the one that started them.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple, Self
from zipfile import ZipFile

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
    """Unpack the archive into a folder that its content names, and return this folder."""
    folder = prefix / digest_of(archive)
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(archive) as packed:
        packed.extractall(folder)
    return folder


def digest_of(archive: Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()[:DIGITS]


def use(folder: Path) -> Path:
    """Have `current` lead to this folder; returns the link."""
    current, beside = folder.parent / "current", folder.parent / ".current"
    beside.unlink(missing_ok=True)
    beside.symlink_to(folder)
    beside.replace(current)
    return current
