"""Logs as the supervisor writes them, in memory, and a plain model of how they are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from connections_app.logs.reading import AttemptLog
from engines.output_order import ORDERED
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt

OUT, ERR = ORDERED


@dataclass
class Write:
    """Bytes that a rank wrote to a stream at a time."""

    at_ms: int
    rank: int
    stream: Stream
    data: bytes


@dataclass
class WrittenLog:
    """The files of an attempt's logs, as its engine reads them."""

    files: dict[tuple[int, Stream], bytes] = field(default_factory=dict)
    over: bool = False
    reads: int = 0
    most: int = 1 << 30
    """Largest number of bytes that one read may ask for."""

    def __post_init__(self) -> None:
        self._streams: dict[int, tuple[Stream, int]] = {}

    def write(self, written: Write) -> None:
        """As `OutputOrder` and `CappedLog` do: a record where the stream changes, or a second has passed."""
        last, at_ms = self._streams.get(written.rank, (None, 0))
        if written.stream is not last or written.at_ms - at_ms >= 1000:
            sizes = " ".join(f"{len(self.files.get((written.rank, stream), b'')):012d}" for stream in ORDERED)
            self._add(written.rank, Stream.ORDER, f"{written.at_ms:013d} {sizes}\n".encode())
            self._streams[written.rank] = (written.stream, written.at_ms)
        self._add(written.rank, written.stream, written.data)

    def _add(self, rank: int, stream: Stream, data: bytes) -> None:
        self.files[rank, stream] = self.files.get((rank, stream), b"") + data

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        self.reads += 1
        assert 0 <= limit <= self.most
        whole = self.files.get((rank, stream), b"")
        data = whole[offset : offset + limit]
        after = offset + len(data)
        return LogChunk(data, offset, after, len(whole), eof=self.over and after >= len(whole))

    def reader(self) -> AttemptLog:
        engine: Any = self
        return AttemptLog(Attempt(pk=1, state=Attempt.State.RUNNING), engine)


@dataclass(frozen=True)
class ModelLine:
    at_ms: int
    rank: int
    stream: Stream
    data: bytes


def model_lines(
    writes: Sequence[Write], streams: Sequence[Stream] = ORDERED
) -> tuple[list[ModelLine], list[ModelLine]]:
    """Lines by the time of the record of their end, then by rank; and those that have no end."""
    ended: list[ModelLine] = []
    begun: dict[tuple[int, Stream], bytes] = {}
    record: dict[int, tuple[Stream, int]] = {}
    for one in writes:
        last, at_ms = record.get(one.rank, (None, 0))
        if one.stream is not last or one.at_ms - at_ms >= 1000:
            record[one.rank] = one.stream, one.at_ms
        *whole, rest = (begun.get((one.rank, one.stream), b"") + one.data).split(b"\n")
        ended += [ModelLine(record[one.rank][1], one.rank, one.stream, line) for line in whole]
        begun[one.rank, one.stream] = rest
    ended.sort(key=lambda line: (line.at_ms, line.rank))
    places = sorted(begun, key=lambda of: (of[0], ORDERED.index(of[1])))
    unfinished = [ModelLine(0, *of, begun[of]) for of in places if begun[of]]
    return (
        [line for line in ended if line.stream in streams],
        [line for line in unfinished if line.stream in streams],
    )
