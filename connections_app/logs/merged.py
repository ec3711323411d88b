"""Merged log of an attempt: the lines of both streams and of several ranks, in the order in which they were received.

`engines.output_order` says how the sizes of both logs grew; where an attempt has no such records (it ran before they
were kept), standard output comes before standard error, without times. Ranks are merged by time: a part ends where the
next line of a rank that has more may come before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import merge
from itertools import islice, pairwise, takewhile
from operator import itemgetter
from time import monotonic, sleep
from typing import NamedTuple

from connections_app.logs.line_buffer import LONGEST_LINE_BYTES, LineBuffer
from connections_app.logs.reading import LONGEST_WAIT, NO_WAIT, POLL_INTERVAL_S, AttemptLog
from engines.output_order import ORDERED, RECORD_BYTES, OrderRecord, parse_order
from engines.protocol import LogChunk, Stream

PART_BYTES = 256 * 1024
"""Of each stream in one part, divided among the ranks; and the rest of a line."""
PART_RECORDS = 2000
PART_LINES = 40_000
MOST_RANKS = 16
"""Read together; of a wider gang one rank is chosen."""
UNKNOWN = 1 << 62
"""Size that a log may still reach."""


class Position(NamedTuple):
    """Position in the log of one rank: bytes of the order records, and in each stream where its next line begins.

    `read`: up to where the streams were read, if that is more: of a line that is too long to be read twice.
    """

    order: int
    streams: tuple[int, ...]
    read: tuple[int, ...] = ()

    @property
    def all_read(self) -> tuple[int, ...]:
        return self.read or self.streams


class Line(NamedTuple):
    """A line without its newline; `at_ms`: when it was received, in milliseconds since 1970, 0 if that is not known.

    `length`: its bytes, of which `data` has the first ones; `end`: offset in its stream after it and its newline.
    """

    at_ms: int
    rank: int
    stream: Stream
    data: bytes
    length: int
    end: int
    is_ended: bool = True


Ends = Mapping[int, Sequence[int]]
"""Sizes of the streams of each rank, up to which a log is read."""


@dataclass(frozen=True)
class LogPart:
    """Some lines, and where to go on; `unfinished`: lines without an end so far, which the next part has, too.

    `has_more`: the log has more now. `last_ms`: no later line was received before that time.
    """

    lines: list[Line]
    unfinished: list[Line]
    positions: Mapping[int, Position]
    is_complete: bool
    is_ordered: bool = True
    has_more: bool = False
    last_ms: int = 0


@dataclass(frozen=True)
class RawPart:
    """Data read from one rank: bytes of each stream, records, and lines that were begun before.

    `ends`: sizes that the streams do not outgrow, whatever the records say; `UNKNOWN` while more may come.
    """

    chunks: Sequence[LogChunk]
    records: Sequence[OrderRecord]
    has_more_records: bool
    ends: Sequence[int]
    buffers: Sequence[LineBuffer]


@dataclass
class _Merge:
    """Lines of one rank so far; times never go back."""

    rank: int
    streams: Sequence[Stream]
    buffers: Sequence[LineBuffer]
    lines: list[Line] = field(default_factory=list)
    last_ms: int = 0

    def take(self, n: int, data: bytes, at_ms: int) -> None:
        self.last_ms = at_ms = max(at_ms, self.last_ms)
        stream = self.streams[n]
        self.lines += [Line(at_ms, self.rank, stream, *line) for line in self.buffers[n].take(data)]

    def unfinished(self) -> list[Line]:
        return [
            Line(self.last_ms, self.rank, stream, buffer.head, buffer.length, buffer.read, is_ended=False)
            for stream, buffer in zip(self.streams, self.buffers, strict=True)
            if buffer.length
        ]

    def position(self, order: int, *, is_end: bool) -> Position:
        """Where to go on: at the end, or the beginning of a line, unless it is too long to be read again."""
        streams = tuple(buffer.read if is_end else buffer.begin for buffer in self.buffers)
        read = tuple(
            buffer.read if is_end or buffer.length > LONGEST_LINE_BYTES else buffer.begin for buffer in self.buffers
        )
        return Position(order, streams, read if read != streams else ())


def read_merged(
    log: AttemptLog,
    positions: Mapping[int, Position],
    *,
    streams: Sequence[Stream],
    wait: timedelta = NO_WAIT,
    until: Ends | None = None,
) -> LogPart:
    """Lines of these ranks from their positions on; polls for up to `wait` while there is nothing new."""
    until_s = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    ends, share = until or dict.fromkeys(positions, (UNKNOWN,) * len(streams)), PART_BYTES // max(1, len(positions))
    while True:
        parts = [_RankReader(log, rank, streams, ends[rank], share).part(at) for rank, at in positions.items()]
        part = join_parts(parts, positions, streams)
        if part.lines or part.is_complete or part.positions != positions or monotonic() >= until_s:
            return part
        sleep(POLL_INTERVAL_S)


def read_all(
    log: AttemptLog, positions: Mapping[int, Position], *, streams: Sequence[Stream], until: Ends
) -> Iterator[LogPart]:
    """Part after part from these positions up to these ends: a log that grows meanwhile does not go on for ever."""
    while True:
        part = read_merged(log, positions, streams=streams, until=until)
        is_last = not part.has_more or part.positions == positions
        yield replace(part, has_more=not is_last)
        if is_last:
            return
        positions = part.positions


def start_of(ranks: Iterable[int], streams: Sequence[Stream]) -> dict[int, Position]:
    return {rank: Position(0, (0,) * len(streams)) for rank in ranks}


def ends_of(log: AttemptLog, ranks: Iterable[int], streams: Sequence[Stream]) -> dict[int, tuple[int, ...]]:
    """Sizes of the streams of these ranks as they are."""
    return {rank: tuple(log.size(stream, rank) for stream in streams) for rank in ranks}


def join_parts(parts: Sequence[LogPart], before: Mapping[int, Position], streams: Sequence[Stream]) -> LogPart:
    """Parts of several ranks as one, merged by time; lines after one that was not read yet wait for the next part."""
    horizons = [(part.last_ms, n) for n, part in enumerate(parts) if part.has_more]
    horizon = min(horizons, default=(UNKNOWN, 0))
    received = merge(*(_numbered(part, n) for n, part in enumerate(parts)), key=itemgetter(0))
    lines = [line for _, line in islice(takewhile(lambda one: one[0] <= horizon, received), PART_LINES)]
    kept = {rank: [line for line in lines if line.rank == rank] for rank in before}
    cut = [_cut(part, kept[rank], at, streams) for part, (rank, at) in zip(parts, before.items(), strict=True)]
    return LogPart(
        lines=lines,
        unfinished=[line for part in cut for line in part.unfinished],
        positions={rank: at for part in cut for rank, at in part.positions.items()},
        is_complete=all(part.is_complete for part in cut),
        is_ordered=all(part.is_ordered for part in cut),
        has_more=any(part.has_more for part in cut),
    )


def _numbered(part: LogPart, n: int) -> Iterator[tuple[tuple[int, int], Line]]:
    return (((line.at_ms, n), line) for line in part.lines)


def _cut(part: LogPart, kept: Sequence[Line], at: Position, streams: Sequence[Stream]) -> LogPart:
    """The part with these first lines of it alone: the others are read again."""
    if len(kept) == len(part.lines):
        return part
    ((rank, _),) = part.positions.items()
    ends = {line.stream: line.end for line in kept}
    begins = tuple(ends.get(stream, begin) for stream, begin in zip(streams, at.streams, strict=True))
    read = tuple(ends.get(stream, end) for stream, end in zip(streams, at.all_read, strict=True))
    position = Position(at.order, begins, read if read != begins else ())
    return replace(part, unfinished=[], positions={rank: position}, is_complete=False, has_more=True)


def merge_streams(raw: RawPart, at: Position, *, rank: int, streams: Sequence[Stream]) -> LogPart:
    """Lines of one rank in the order of its records. Between two records only one of the streams grows."""
    sizes = _true_sizes(raw)
    steps = list(_steps(raw, sizes, at.all_read))
    merged, done = _Merge(rank, streams, raw.buffers), at.all_read
    for (at_ms, before), (_, after) in pairwise(steps):
        for n, chunk in enumerate(raw.chunks):
            merged.take(n, chunk.data[before[n] - chunk.offset : after[n] - chunk.offset], at_ms)
        done = after
    passed = sum(_is_within(size, done) for size in sizes)
    is_end = all(chunk.eof and chunk.next_offset == end for chunk, end in zip(raw.chunks, done, strict=True))
    unfinished = merged.unfinished()
    return LogPart(
        lines=[*merged.lines, *(unfinished if is_end else [])],
        unfinished=[] if is_end else unfinished,
        positions={rank: merged.position(at.order + RECORD_BYTES * max(0, passed - 1), is_end=is_end)},
        is_complete=is_end,
        is_ordered=len(streams) == 1 or bool(raw.records) or at.order > 0 or not any(done),
        has_more=not is_end and _has_more(raw, sizes, done),
        last_ms=merged.last_ms,
    )


def _true_sizes(raw: RawPart) -> list[tuple[int, ...]]:
    """Sizes of each record: at most those of a later one, as logs only grow.

    Where a disk was full, a record may have a size that the log did not reach.
    """
    least, found = tuple(raw.ends), []
    for record in reversed(raw.records):
        least = tuple(map(min, record.sizes, least))
        found.append(least)
    return found[::-1]


def _steps(
    raw: RawPart, sizes: Sequence[tuple[int, ...]], begin: tuple[int, ...]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Sizes of the streams step by step, each with the time from which the next one's bytes were received."""
    ends = tuple(chunk.next_offset for chunk in raw.chunks)
    passed = sum(_is_within(size, begin) for size in sizes)
    yield raw.records[max(0, passed - 1)].at_ms if raw.records else 0, begin
    for record, size in zip(raw.records[passed:], sizes[passed:], strict=True):
        yield record.at_ms, tuple(max(a, min(b, end)) for a, b, end in zip(begin, size, ends, strict=True))
        if not _is_within(size, ends):  # not all of it was read
            return
    if not raw.has_more_records:
        yield 0, ends


def _is_within(sizes: Sequence[int], ends: Sequence[int]) -> bool:
    return all(size <= end for size, end in zip(sizes, ends, strict=True))


def _has_more(raw: RawPart, sizes: Sequence[tuple[int, ...]], done: Sequence[int]) -> bool:
    """Whether the next part can go on now; not if the next record is of bytes that are still to come."""
    there = tuple(min(chunk.size, end) for chunk, end in zip(raw.chunks, raw.ends, strict=True))
    if _is_within(there, done):
        return False
    following = next((size for size in sizes if not _is_within(size, done)), there)
    return raw.has_more_records or not _is_within(tuple(map(min, following, there)), done)


@dataclass(frozen=True)
class _RankReader:
    """Reads the log of one rank; `until`: sizes beyond which nothing is read; `share`: bytes of each stream."""

    log: AttemptLog
    rank: int
    streams: Sequence[Stream]
    until: Sequence[int]
    share: int

    def part(self, at: Position) -> LogPart:
        return merge_streams(self._read(at), at, rank=self.rank, streams=self.streams)

    def _read(self, at: Position) -> RawPart:
        """Read bytes before records, so that every record has its bytes or is left for the next read."""
        chunks = [
            self.log.read(stream, self.rank, read, max(0, min(self.share + LONGEST_LINE_BYTES, end - read)))
            for stream, read, end in zip(self.streams, at.all_read, self.until, strict=True)
        ]
        buffers = [self._buffer(*of) for of in zip(self.streams, at.streams, at.all_read, strict=True)]
        ends = [min(end, chunk.size if chunk.eof else UNKNOWN) for end, chunk in zip(self.until, chunks, strict=True)]
        if Stream.SETUP in self.streams:
            return RawPart(chunks, [], False, ends, buffers)
        order = self.log.read(Stream.ORDER, self.rank, at.order, PART_RECORDS * RECORD_BYTES)
        return RawPart(chunks, records_in(order, self.streams), order.next_offset < order.size, ends, buffers)

    def _buffer(self, stream: Stream, begin: int, read: int) -> LineBuffer:
        """The line that was begun before; what is kept of it is read again."""
        if begin == read:
            return LineBuffer(begin, read)
        head = self.log.read(stream, self.rank, begin, min(LONGEST_LINE_BYTES, read - begin)).data
        return LineBuffer(begin, read, head, self.log.read(stream, self.rank, read - 1, 1).data)


def records_in(order: LogChunk, streams: Sequence[Stream]) -> list[OrderRecord]:
    """Records with the sizes of these streams alone."""
    columns = [ORDERED.index(stream) for stream in streams]
    return [record._replace(sizes=tuple(record.sizes[n] for n in columns)) for record in parse_order(order.data)]
