"""The last lines of a merged log: read backwards, block by block, to where they begin."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from connections_app.logs.merged import UNKNOWN, Ends, LogPart, Position, ends_of, read_all, records_in
from connections_app.logs.reading import BLOCK_BYTES, AttemptLog
from engines.output_order import RECORD_BYTES
from engines.protocol import Stream

RECORDS = 2000
"""Read at once."""


@dataclass(frozen=True)
class Tail:
    """Where the last lines of some ranks begin, in logs of these sizes, and how many lines follow from there."""

    positions: dict[int, Position]
    lines: int
    ends: Ends


class _Block(NamedTuple):
    """Bytes of one stream that were received without others between; `before`: sizes of all streams at their begin."""

    record: int
    stream: int
    before: tuple[int, ...]
    data: bytes


def read_tail(
    log: AttemptLog, ranks: Sequence[int], *, streams: Sequence[Stream], lines: int = UNKNOWN, limit: int = UNKNOWN
) -> LogPart:
    """The last lines of these ranks as one part: so many at most, and about so many bytes."""
    parts = list(last_parts(log, ranks, streams=streams, lines=lines, limit=limit))
    return replace(parts[-1], lines=[line for part in parts for line in part.lines])


def last_parts(
    log: AttemptLog,
    ranks: Sequence[int],
    *,
    streams: Sequence[Stream],
    lines: int,
    limit: int = UNKNOWN,
    ends: Ends | None = None,
) -> Iterator[LogPart]:
    """The last lines of these ranks, part after part: the last of all of them are among the last of each."""
    tail = find_tail(log, ranks, streams, lines=lines, limit=limit // len(ranks), ends=ends)
    surplus = max(0, tail.lines - lines)
    for part in read_all(log, tail.positions, streams=streams, until=tail.ends):
        kept = part.lines[surplus:]
        surplus -= len(part.lines) - len(kept)
        if kept or not part.has_more:
            yield replace(part, lines=kept, unfinished=part.unfinished[surplus:])


def find_tail(
    log: AttemptLog, ranks: Iterable[int], streams: Sequence[Stream], *, lines: int, limit: int, ends: Ends | None
) -> Tail:
    """Where the last lines of each rank begin."""
    ends = ends or ends_of(log, ranks, streams)
    found = {rank: _Backwards(log, rank, streams, ends[rank]).find(lines, limit) for rank in ranks}
    return Tail({rank: at for rank, (at, _) in found.items()}, sum(count for _, count in found.values()), ends)


class _Backwards:
    """Reads the log of one rank backwards."""

    def __init__(self, log: AttemptLog, rank: int, streams: Sequence[Stream], ends: Sequence[int]) -> None:
        self._log, self._rank, self._streams, self._ends = log, rank, streams, tuple(ends)
        self._records = 0 if Stream.SETUP in streams else log.size(Stream.ORDER, rank) // RECORD_BYTES
        self._cached = [(0, b"")] * len(streams)
        """Of each stream, what was read last: its offset, and the bytes."""

    def find(self, lines: int, limit: int) -> tuple[Position, int]:
        """Where the last lines begin, so many at most and of so many bytes, but one at least; and their number."""
        unfinished = sum(end > 0 and self._bytes(n, end - 1, end) != b"\n" for n, end in enumerate(self._ends))
        found, count = (0, self._ends), 0
        for number, (record, sizes, passed) in enumerate(self._line_begins()):
            if count and passed > limit:
                break
            found, count = (record, sizes), number + unfinished
            if count >= lines:
                break
        return self._position(*found), count

    def _line_begins(self) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """Where lines begin, the last one first: the record, the sizes there, and the number of bytes after it.

        The begin of the log is one, too.
        """
        passed = 0
        for record, n, before, data in self._blocks():
            at = len(data)
            while (at := data.rfind(b"\n", 0, at)) >= 0:
                sizes = (*before[:n], before[n] + at + 1, *before[n + 1 :])
                yield record, sizes, passed + len(data) - at - 1
            passed += len(data)
        yield 0, (0,) * len(self._streams), passed

    def _position(self, record: int, sizes: Sequence[int]) -> Position:
        """Position at these sizes, or where the lines begin that are unfinished there."""
        return Position(record * RECORD_BYTES, tuple(self._line_begin(n, size) for n, size in enumerate(sizes)))

    def _line_begin(self, n: int, end: int) -> int:
        while end > 0:
            begin = max(0, end - BLOCK_BYTES)
            data = self._log.read(self._streams[n], self._rank, begin, end - begin).data
            if (at := data.rfind(b"\n")) >= 0:
                return begin + at + 1
            end = begin
        return 0

    def _bytes(self, n: int, begin: int, end: int) -> bytes:
        """Bytes of a stream, read in blocks that end where those that were asked for do."""
        at, data = self._cached[n]
        if begin < at or end > at + len(data):
            at = max(0, min(begin, end - BLOCK_BYTES))
            data = self._log.read(self._streams[n], self._rank, at, end - at).data
            self._cached[n] = at, data
        return data[begin - at : end - at]

    def _blocks(self) -> Iterator[_Block]:
        """All bytes, the last ones first."""
        after = self._ends
        for record, sizes in self._true_sizes():
            for n in reversed(range(len(after))):
                end = after[n]
                while end > sizes[n]:
                    begin = max(sizes[n], end - BLOCK_BYTES)
                    before = (*after[:n], begin, *sizes[n + 1 :])
                    yield _Block(record, n, before, self._bytes(n, begin, end))
                    end = begin
            after = sizes

    def _true_sizes(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Number and sizes of each record, the last one first; at most those of a later one, and 0 in the end."""
        least, last = self._ends, self._records
        while last > 0:
            first = max(0, last - RECORDS)
            order = self._log.read(Stream.ORDER, self._rank, first * RECORD_BYTES, (last - first) * RECORD_BYTES)
            records = records_in(order, self._streams)
            for n, record in reversed(list(enumerate(records, first))):
                least = tuple(map(min, record.sizes, least))
                yield n, least
            last = first
        yield 0, (0,) * len(self._streams)
