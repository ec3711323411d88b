"""Merged log of an attempt: the lines of both streams and of several ranks, in the order in which they were received.

`engines.output_order` says how the sizes of both logs grew; where an attempt has no such records (it ran before they
were kept), standard output comes before standard error, without times. Ranks are merged by time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import merge
from itertools import pairwise
from time import monotonic, sleep
from typing import NamedTuple

from connections_app.logs.reading import LONGEST_WAIT, NO_WAIT, POLL_INTERVAL_S, log_size, read_log
from engines.output_order import ORDERED, RECORD_BYTES, OrderRecord, parse_order
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt

PART_BYTES = 256 * 1024
"""Of each stream, at most, in one part."""
PART_RECORDS = 2000
LONGEST_LINE_BYTES = 64 * 1024
"""A longer line is cut into several."""
MOST_RANKS = 16
"""Read together; of a wider gang one rank is chosen."""


class Position(NamedTuple):
    """Position in the log of one rank: bytes of the order records and of each stream."""

    order: int
    streams: tuple[int, ...]


class Line(NamedTuple):
    """A line without its newline; `at_ms`: when it was received, in milliseconds since 1970, 0 if that is not known."""

    at_ms: int
    rank: int
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class LogPart:
    """Some lines, and where to go on; `unfinished`: lines without an end so far, which the next part has, too."""

    lines: list[Line]
    unfinished: list[Line]
    positions: Mapping[int, Position]
    is_complete: bool
    is_ordered: bool = True


@dataclass(frozen=True)
class RawPart:
    """Data read from one rank: bytes of each stream from its position, records, and sizes."""

    chunks: Sequence[LogChunk]
    records: Sequence[OrderRecord]
    has_more_records: bool


@dataclass
class _Merge:
    """Lines so far, and the beginnings of lines that have no end yet."""

    rank: int
    streams: Sequence[Stream]
    lines: list[Line] = field(default_factory=list)
    partial: dict[Stream, bytes] = field(default_factory=dict)

    def take(self, stream: Stream, data: bytes, at_ms: int) -> None:
        found = (self.partial.get(stream, b"") + data).split(b"\n")
        *whole, rest = (piece for line in found for piece in _pieces(line))
        self.lines += [Line(at_ms, self.rank, stream, line) for line in whole]
        self.partial[stream] = rest


def _pieces(line: bytes) -> list[bytes]:
    """A line, or the pieces of one that is longer than `LONGEST_LINE_BYTES`."""
    return [line[at : at + LONGEST_LINE_BYTES] for at in range(0, max(len(line), 1), LONGEST_LINE_BYTES)]


def read_merged(
    attempt: Attempt,
    positions: Mapping[int, Position],
    *,
    streams: Sequence[Stream],
    wait: timedelta = NO_WAIT,
) -> LogPart:
    """Lines of these ranks from their positions on; polls for up to `wait` while there is nothing new."""
    until = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    while True:
        part = join_parts([_part_of(attempt, rank, at, streams) for rank, at in positions.items()])
        if part.lines or part.is_complete or part.positions != positions or monotonic() >= until:
            return part
        sleep(POLL_INTERVAL_S)


def start_of(ranks: Iterable[int], streams: Sequence[Stream]) -> dict[int, Position]:
    return {rank: Position(0, (0,) * len(streams)) for rank in ranks}


def read_tail(attempt: Attempt, ranks: Sequence[int], *, streams: Sequence[Stream], limit: int) -> LogPart:
    """The last lines of these ranks, about so many bytes."""
    found = {rank: _tail_of(attempt, rank, streams, limit // len(ranks)) for rank in ranks}
    # One byte more: it ends a line that is not wanted, or belongs to one whose beginning is missing.
    begun = {
        rank: at._replace(streams=tuple(max(0, offset - 1) for offset in at.streams)) for rank, at in found.items()
    }
    cut = {(rank, stream) for rank, at in begun.items() for stream, n in zip(streams, at.streams, strict=True) if n}
    part = read_merged(attempt, begun, streams=streams)
    return replace(part, lines=list(_without_first(part.lines, cut)))


def _without_first(lines: Iterable[Line], cut: Set[tuple[int, Stream]]) -> Iterator[Line]:
    """Lines without the first of each of these logs."""
    left = set(cut)
    for line in lines:
        if (line.rank, line.stream) in left:
            left.remove((line.rank, line.stream))
        else:
            yield line


def join_parts(parts: Sequence[LogPart]) -> LogPart:
    """Parts of several ranks as one, merged by time."""
    return LogPart(
        lines=list(merge(*(part.lines for part in parts), key=lambda line: line.at_ms)),
        unfinished=[line for part in parts for line in part.unfinished],
        positions={rank: at for part in parts for rank, at in part.positions.items()},
        is_complete=all(part.is_complete for part in parts),
        is_ordered=all(part.is_ordered for part in parts),
    )


def merge_streams(raw: RawPart, at: Position, *, rank: int, streams: Sequence[Stream]) -> LogPart:
    """Lines of one rank in the order of its records. Between two records only one of the streams grows."""
    steps = list(_steps(raw, at))
    merged, done = _Merge(rank, streams), list(at.streams)
    for (at_ms, before), (_, after) in pairwise(steps):
        for n, (stream, chunk) in enumerate(zip(streams, raw.chunks, strict=True)):
            merged.take(stream, chunk.data[before[n] - at.streams[n] : after[n] - at.streams[n]], at_ms)
        done = list(after)
    eof = all(chunk.eof and chunk.next_offset == end for chunk, end in zip(raw.chunks, done, strict=True))
    last_ms = steps[-2][0] if len(steps) > 1 else 0
    left = [Line(last_ms, rank, stream, data) for stream, data in merged.partial.items() if data]
    held = dict.fromkeys(streams, 0) | ({} if eof else {line.stream: len(line.data) for line in left})
    position = Position(
        at.order + RECORD_BYTES * _passed(raw.records, done),
        tuple(end - held[stream] for stream, end in zip(streams, done, strict=True)),
    )
    ordered = len(streams) == 1 or bool(raw.records) or at.order > 0 or not any(done)
    return LogPart([*merged.lines, *(left if eof else [])], [] if eof else left, {rank: position}, eof, ordered)


def _steps(raw: RawPart, at: Position) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Sizes of the streams step by step, each with the time from which the next one's bytes were received."""
    ends = tuple(chunk.next_offset for chunk in raw.chunks)
    first_ms = next((record.at_ms for record in reversed(raw.records) if not _is_beyond(record, at)), 0)
    yield first_ms or (raw.records[0].at_ms if raw.records else 0), at.streams
    beyond = [record for record in raw.records if _is_beyond(record, at)]
    for record in beyond:
        sizes = tuple(max(a, b) for a, b in zip(record.sizes, at.streams, strict=True))
        if any(size > end for size, end in zip(sizes, ends, strict=True)):  # not all of it was read
            yield record.at_ms, tuple(min(a, b) for a, b in zip(sizes, ends, strict=True))
            return
        yield record.at_ms, sizes
    if not raw.has_more_records:
        yield 0, ends


def _is_beyond(record: OrderRecord, at: Position) -> bool:
    return any(size > begin for size, begin in zip(record.sizes, at.streams, strict=True))


def _passed(records: Sequence[OrderRecord], done: Sequence[int]) -> int:
    """Number of records before the last one at or below these sizes, which has the time of the following bytes."""
    passed = sum(all(size <= end for size, end in zip(record.sizes, done, strict=True)) for record in records)
    return max(passed - 1, 0)


def _part_of(attempt: Attempt, rank: int, at: Position, streams: Sequence[Stream]) -> LogPart:
    return merge_streams(_read(attempt, rank, at, streams), at, rank=rank, streams=streams)


def _read(attempt: Attempt, rank: int, at: Position, streams: Sequence[Stream]) -> RawPart:
    """Read bytes before records, so that every record has its bytes or is left for the next read."""
    chunks = [
        read_log(attempt, stream, rank=rank, offset=offset, wait=NO_WAIT, limit=PART_BYTES)
        for stream, offset in zip(streams, at.streams, strict=True)
    ]
    if Stream.SETUP in streams:
        return RawPart(chunks, [], has_more_records=False)
    limit = PART_RECORDS * RECORD_BYTES
    order = read_log(attempt, Stream.ORDER, rank=rank, offset=at.order, wait=NO_WAIT, limit=limit)
    return RawPart(
        chunks, _of_streams(parse_order(order.data), streams), has_more_records=order.next_offset < order.size
    )


def _of_streams(records: Iterable[OrderRecord], streams: Sequence[Stream]) -> list[OrderRecord]:
    """Records with the sizes of these streams alone."""
    columns = [ORDERED.index(stream) for stream in streams]
    return [record._replace(sizes=tuple(record.sizes[n] for n in columns)) for record in records]


def _tail_of(attempt: Attempt, rank: int, streams: Sequence[Stream], limit: int) -> Position:
    sizes = tuple(log_size(attempt, stream, rank=rank) for stream in streams)
    if Stream.SETUP in streams or not (whole := log_size(attempt, Stream.ORDER, rank=rank) // RECORD_BYTES):
        return Position(0, tuple(max(0, size - limit) for size in sizes))
    first = max(0, whole - PART_RECORDS)
    order = read_log(
        attempt, Stream.ORDER, rank=rank, offset=first * RECORD_BYTES, wait=NO_WAIT, limit=PART_RECORDS * RECORD_BYTES
    )
    n, streams_at = tail_start(_of_streams(parse_order(order.data), streams), sizes, limit)
    return Position((first + n) * RECORD_BYTES, streams_at)


def tail_start(records: Sequence[OrderRecord], sizes: Sequence[int], limit: int) -> tuple[int, tuple[int, ...]]:
    """Where the last `limit` bytes begin: the record from which to read, and the offset in each stream."""
    steps = [record.sizes for record in records] + [tuple(sizes)]
    left = [sum(max(0, end - size) for end, size in zip(sizes, step, strict=True)) for step in steps]
    n = next(n for n, bytes_left in enumerate(left) if bytes_left <= limit)
    before = steps[max(0, n - 1)]
    spare = limit - left[n]  # of the bytes between these two steps, which are of one stream
    return max(0, n - 1), tuple(max(a, min(b, end) - spare) for a, b, end in zip(before, steps[n], sizes, strict=True))
