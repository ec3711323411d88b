"""Files that agents have sent: logs by attempt and checkpoints by job, below `MOTLEY_AGENT_ROOT`."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from django.conf import settings

from connections_app.agents.unpacked_size import UnpackedSize
from engines.attempt_files import AttemptFolder
from engines.protocol import Stream

OWN = 0o700
CHUNK_BYTES = 1 << 20
ASK_EVERY_BYTES = 64 << 20


class Readable(Protocol):
    """A body of a request."""

    def read(self, size: int, /) -> bytes: ...


Permission = Callable[[], AbstractContextManager[bool]]
"""Asked before an archive comes, after each `ASK_EVERY_BYTES` of it, and at its end."""


class LargerThanAllowed(Exception):
    """More bytes were announced than the service takes."""


class ArchiveLimits(NamedTuple):
    """Most bytes of an archive of checkpoints."""

    packed: int
    unpacked: int


def agent_root() -> Path:
    return settings.MOTLEY_AGENT_ROOT or settings.MOTLEY_ENGINE_ROOT / "agents"


def attempt_folder(attempt: int) -> AttemptFolder:
    """Folder with the logs of an attempt."""
    return AttemptFolder(agent_root() / "attempts" / str(int(attempt)))


def checkpoints_of(job: UUID) -> Path:
    """Archive of the job's checkpoints; it need not exist."""
    return agent_root() / "checkpoints" / f"{job}.tar.gz"


def append_log(attempt: int, stream: Stream, offset: int, data: bytes, *, most: int) -> int:
    """Append bytes that begin at the offset, and return the size; of those that are there already, nothing is done.

    Beyond `most` nothing is stored: the engine of the agent marks and ends a log that long itself.
    """
    folder = attempt_folder(attempt)
    make_folder(folder.path)
    descriptor = os.open(folder.log(stream, 0), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if offset == size and size + len(data) <= most:
            size += file.write(data)
        return size


class CutShort(Exception):
    """Fewer bytes came than were announced."""


def store_checkpoints(
    job: UUID, body: Readable, *, size: int, limits: ArchiveLimits, sender: int, still: Permission
) -> bool:
    """Store the archive of this size in the place of the one before, if the sender still may; whether it may.

    Permission lasts as long as its context: the archive takes its place within it.
    A sender has one archive under way at a time. Raises `LargerThanAllowed`, `UnpacksToMore` and `NotGzip`, and
    `CutShort` where the transfer was.
    """
    if size > limits.packed:
        raise LargerThanAllowed
    target = checkpoints_of(job)
    make_folder(target.parent)
    beside = target.with_name(f".agent-{sender}")
    with _received(body, beside, size, UnpackedSize(limits.unpacked), still) as whole, still() as may:
        if whole and may:
            beside.replace(target)
        return whole and may


def size_of(job: str, attempts: list[int]) -> int:
    """Bytes of what agents have sent of a job."""
    logs = [path for attempt in attempts for path in attempt_folder(attempt).path.glob("*.log")]
    return sum(path.stat().st_size for path in (*logs, checkpoints_of(UUID(job))) if path.exists())


def discard(job: str, attempts: list[int]) -> None:
    """Remove what agents have sent of a job. Idempotent."""
    for attempt in attempts:
        shutil.rmtree(attempt_folder(attempt).path, ignore_errors=True)
    checkpoints_of(UUID(job)).unlink(missing_ok=True)


@contextmanager
def _received(body: Readable, path: Path, size: int, unpacked: UnpackedSize, still: Permission) -> Iterator[bool]:
    """The body in a file, which is removed at the end; False where the sender was not allowed to go on with it.

    A file that a killed process has left is written over.
    """
    try:
        with path.open("wb") as file:
            for at, wanted in _pieces(size):
                if at % ASK_EVERY_BYTES == 0 and not _allows(still):
                    yield False
                    return
                chunk = _whole(body, wanted)
                unpacked.add(chunk)
                file.write(chunk)
            unpacked.finish()
            file.flush()
            os.fsync(file.fileno())
        yield True
    finally:
        path.unlink(missing_ok=True)


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    """Where each piece begins, and its length."""
    return ((at, min(CHUNK_BYTES, size - at)) for at in range(0, size, CHUNK_BYTES))


def _whole(body: Readable, size: int) -> bytes:
    """So many bytes of the body; raises `CutShort` where it ends before."""
    found = b""
    while len(found) < size:
        if not (piece := body.read(size - len(found))):
            raise CutShort
        found += piece
    return found


def _allows(still: Permission) -> bool:
    with still() as may:
        return may


def make_folder(folder: Path) -> None:
    folder.mkdir(mode=OWN, parents=True, exist_ok=True)
