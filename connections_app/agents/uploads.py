"""Uploads of agents: readings, files of jobs and checkpoints, within slots and limits of size."""

import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from django.conf import settings

from connections_app.errors import TooManyUploads
from engines.attempt_files import AttemptFolder
from engines.linux import lock
from engines.protocol import GpuReading, Stream, Throttle, WatchedGpu

MOST_COPIES = 2
"""Each reads and writes as fast as the disk lets it."""


@contextmanager
def own_slot(agent: int, what: str) -> Iterator[None]:
    """The slot of an agent for this kind of file; raises `TooManyUploads` while it sends another one."""
    with _first_free([_folder() / f"agent-{agent}.{what}"], TooManyUploads(f"This machine is sending {what} already")):
        yield


@contextmanager
def shared_slot(most: int, *, is_last: bool) -> Iterator[None]:
    """One of the slots of all agents; raises `TooManyUploads` while none is free.

    A quarter is kept for last archives: jobs wait for these.
    """
    usable = most if is_last else most - most // 4
    paths = [_folder() / f"slot-{number}" for number in range(usable)]
    with _first_free(paths, TooManyUploads(f"Machines that joined send {usable} archives already, the limit")):
        yield


@contextmanager
def copy_slot() -> Iterator[None]:
    """One of the slots of copies of checkpoints for new jobs; raises `TooManyUploads` while none is free."""
    paths = [_folder() / f"copy-{number}" for number in range(MOST_COPIES)]
    with _first_free(paths, TooManyUploads(f"{MOST_COPIES} checkpoints are being copied already")):
        yield


@contextmanager
def _first_free(paths: list[Path], error: TooManyUploads) -> Iterator[None]:
    for path in paths:
        with path.open("ab") as file:
            if lock(file.fileno()):
                yield
                return
    raise error


def _folder() -> Path:
    folder = agent_root() / "slots"
    make_folder(folder)
    return folder


GZIP = 16 + zlib.MAX_WBITS
PIECE_BYTES = 1 << 20
INPUT_BYTES = 1 << 14
"""What is given to zlib at a time: it copies what is left at the end of each gzip member."""
MOST_MEMBERS = 1000
"""Parallel compressors write one per block or per process."""


class NotGzip(Exception):
    """The bytes are no gzip archive, or not a whole one."""


class UnpacksToMore(Exception):
    """The archive has more bytes than it may have, unpacked."""


class UnpackedSize:
    """Counts what the pieces of a gzip stream unpack to, with little memory.

    Raises `UnpacksToMore` above the limit, and `NotGzip` where a piece or a checksum is wrong.
    """

    def __init__(self, most: int) -> None:
        self._left, self._members = most, 1
        self._inflater = zlib.decompressobj(GZIP)

    def add(self, piece: bytes) -> None:
        for start in range(0, len(piece), INPUT_BYTES):
            self._add(piece[start : start + INPUT_BYTES])

    def _add(self, piece: bytes) -> None:
        while piece:
            if self._inflater.eof:
                self._begin_member()
            try:
                self._left -= len(self._inflater.decompress(piece, PIECE_BYTES))
            except zlib.error as error:
                raise NotGzip(str(error)) from error
            if self._left < 0:
                raise UnpacksToMore
            piece = self._inflater.unconsumed_tail or self._inflater.unused_data

    def _begin_member(self) -> None:
        """Gzip files may follow each other."""
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise NotGzip(f"it has more than {MOST_MEMBERS} members: compress it as one")
        self._inflater = zlib.decompressobj(GZIP)

    def finish(self) -> None:
        if not self._inflater.eof:
            raise NotGzip("the archive has no end")


MOST_UTILIZATION, MOST_MEMORY_MIB, MOST_POWER_W, MOST_TEMPERATURE_C, MOST_ERRORS = 100, 2**24, 5_000, 200, 2**31
"""Beyond these a figure is no GPU's: it is left out, for energy and means are made of them."""


def readings_of(told: Iterable[GpuReading], watched: Sequence[WatchedGpu]) -> list[GpuReading]:
    """The readings, numbered as the service numbers the GPUs: an agent numbers them by their places in its machine."""
    by_place = {one.gpu: one for one in told}
    return [replace(_possible(by_place[gpu.index]), gpu=gpu.gpu) for gpu in watched if gpu.index in by_place]


def _possible(one: GpuReading) -> GpuReading:
    """The reading without impossible figures, attempts and processes; the attempt is taken from the claims."""
    errors = one.ecc_errors
    return GpuReading(
        gpu=one.gpu,
        utilization=_within(one.utilization, MOST_UTILIZATION),
        memory_used_mib=_within(one.memory_used_mib, MOST_MEMORY_MIB),
        power_w=_within(one.power_w, MOST_POWER_W),
        temperature_c=_within(one.temperature_c, MOST_TEMPERATURE_C),
        ecc_errors=errors if errors is not None and 0 <= errors <= MOST_ERRORS else None,
        throttle=Throttle(int(one.throttle) & sum(Throttle)),
    )


def _within(value: float | None, most: float) -> float | None:
    return value if value is not None and 0 <= value <= most else None


OWN = 0o700
CHUNK_BYTES = 1 << 20
ASK_EVERY_BYTES = 64 << 20
ARCHIVE, UNFINISHED = ".tar.gz", ".agent-"
"""Ending of an archive of checkpoints, and beginning of the name of one that an agent is sending."""


class Readable(Protocol):
    """A body of a request."""

    def read(self, size: int, /) -> bytes: ...


Permission = Callable[[], AbstractContextManager[bool]]
"""Asked before an archive comes, after each `ASK_EVERY_BYTES` of it, and at its end."""


class LargerThanAllowed(Exception):
    """More bytes were announced than the service accepts."""


class ArchiveLimits(NamedTuple):
    """Most bytes of an archive of checkpoints."""

    packed: int
    unpacked: int


def agent_root() -> Path:
    return settings.MOTLEY_AGENT_ROOT or settings.MOTLEY_ENGINE_ROOT / "agents"


def attempt_folder(attempt: int) -> AttemptFolder:
    """Folder with the logs of an attempt."""
    return AttemptFolder(agent_root() / "attempts" / str(int(attempt)))


def stored_logs() -> Iterator[Path]:
    """Folders with logs of attempts, named by their numbers."""
    folders = (agent_root() / "attempts").glob("*")
    return (path for path in folders if path.name.removeprefix("-").isdecimal())


def checkpoints_of(job: UUID) -> Path:
    """Archive of the job's checkpoints; it need not exist."""
    return agent_root() / "checkpoints" / f"{job}{ARCHIVE}"


def stored_checkpoints() -> Iterator[Path]:
    """All archives of checkpoints, also those that are being copied."""
    return (agent_root() / "checkpoints").glob(f"{'[0-9a-f]' * 8}-*{ARCHIVE}")


def unfinished_checkpoints() -> Iterator[Path]:
    """Archives that agents are sending, or that a killed process has left."""
    return (agent_root() / "checkpoints").glob(f"{UNFINISHED}*")


def append_log(attempt: int, stream: Stream, offset: int, data: bytes, *, most: int, rank: int = 0) -> int:
    """Append bytes of a rank's log that begin at the offset, and return the size.

    Bytes that are stored already are skipped. Beyond `most` nothing is stored: the engine of the agent marks and ends a
    log that long itself. A size that does not grow tells the agent so.
    """
    folder = attempt_folder(attempt)
    make_folder(folder.path)
    descriptor = os.open(folder.log(stream, rank), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if offset == size:
            size += file.write(data[: max(0, most - size)])
        return size


class CutShort(Exception):
    """Fewer bytes arrived than were announced."""


def store_checkpoints(
    job: UUID, body: Readable, *, size: int, limits: ArchiveLimits, sender: int, still: Permission
) -> bool:
    """Replace the stored archive by this one, if the sender is still allowed to; returns whether it is.

    Permission lasts as long as its context: the archive takes its place within it.
    A sender has one archive under way at a time. Raises `LargerThanAllowed`, `UnpacksToMore` and `NotGzip`, and
    `CutShort` where the transfer was.
    """
    if size > limits.packed:
        raise LargerThanAllowed
    target = checkpoints_of(job)
    make_folder(target.parent)
    beside = target.with_name(f"{UNFINISHED}{sender}")
    with _received(body, beside, size, UnpackedSize(limits.unpacked), still) as whole, still() as may:
        if whole and may:
            beside.replace(target)
        return whole and may


def size_of(job: str, attempts: list[int]) -> int:
    """Bytes of the files that agents have sent for a job."""
    logs = [path for attempt in attempts for path in attempt_folder(attempt).path.glob("*.log")]
    return sum(path.stat().st_size for path in (*logs, checkpoints_of(UUID(job))) if path.exists())


def discard(job: str, attempts: list[int]) -> None:
    """Remove the files that agents have sent for a job. Idempotent."""
    for attempt in attempts:
        shutil.rmtree(attempt_folder(attempt).path, ignore_errors=True)
    checkpoints_of(UUID(job)).unlink(missing_ok=True)


@contextmanager
def _received(body: Readable, path: Path, size: int, unpacked: UnpackedSize, still: Permission) -> Iterator[bool]:
    """The body in a temporary file; False if the sender was no longer allowed to continue.

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
    """Yield exactly this number of bytes; raises `CutShort` if the body ends earlier."""
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
