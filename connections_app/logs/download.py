"""Downloads of logs: the bytes that a job wrote, up to where the log reached when the download began."""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from connections_app.logs.merged import Ends, Line, read_all, start_of
from connections_app.logs.reading import AttemptLog
from engines.protocol import Stream

LEAST_BYTES_PER_S = 64 * 1024
SHORTEST_S = 60.0
"""Time of any download; a larger one may take as long as it does at `LEAST_BYTES_PER_S`."""


class DownloadTooSlow(Exception):
    """The client reads too slowly; the connection is cut, so that it sees that the download is not whole."""


class LogDownload:
    """Blocks of a download, which has a slot until it is read or closed, and a time within which it is to be read.

    A generator alone would not do: one that was never started does not run its `finally`.
    """

    def __init__(self, blocks: Iterator[bytes], size: int, give_back: Callable[[], None]) -> None:
        self._blocks, self._give_back = blocks, give_back
        self._until_s = monotonic() + SHORTEST_S + size / LEAST_BYTES_PER_S

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if monotonic() > self._until_s:
            raise DownloadTooSlow
        try:
            return next(self._blocks)
        except StopIteration:
            self._give_back()
            raise

    def close(self) -> None:
        self._give_back()


def merged_blocks(log: AttemptLog, streams: Sequence[Stream], ends: Ends) -> Iterator[bytes]:
    """The merged log as bytes: each line whole, however long, and with an end only if the job wrote one."""
    copied: dict[tuple[int, Stream], int] = {}
    for part in read_all(log, start_of(ends, streams), streams=streams, until=ends):
        block = bytearray()
        for line in (*part.lines, *(() if part.has_more else part.unfinished)):
            begin = copied.get((line.rank, line.stream), 0)
            copied[line.rank, line.stream] = line.end
            if _is_all(line, begin):
                block += line.data + b"\n" * line.is_ended
                continue
            yield bytes(block)
            block.clear()
            yield from log.between(line.stream, line.rank, begin, line.end)
        yield bytes(block)


def _is_all(line: Line, begin: int) -> bool:
    """Whether the data is all of the line, which begins there."""
    return begin + len(line.data) + line.is_ended == line.end
