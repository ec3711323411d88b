"""The end of a log by lines, and a log from one byte to another."""

from collections.abc import Iterator
from datetime import timedelta

from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt
from scheduler_app.looking import read_log

BLOCK_BYTES = 64 * 1024
LONGEST_TAIL_BYTES = 1024 * 1024
AT_ONCE = timedelta()


def last_lines(attempt: Attempt, stream: Stream, *, rank: int, lines: int) -> LogChunk:
    """The last so many lines that fit into a megabyte; a last line without its end is one, too."""
    size = log_size(attempt, stream, rank=rank)
    start = size
    data = b""
    while start > 0 and len(data) < LONGEST_TAIL_BYTES and data[:-1].count(b"\n") < lines:
        step = min(BLOCK_BYTES, start)
        start -= step
        data = read_log(attempt, stream, rank=rank, offset=start, wait=AT_ONCE, limit=step).data + data
    tail = _last(data, lines)
    chunk = read_log(attempt, stream, rank=rank, offset=size, wait=AT_ONCE, limit=1)
    return LogChunk(tail, offset=size - len(tail), next_offset=size, size=size, eof=chunk.eof and chunk.size == size)


def _last(data: bytes, lines: int) -> bytes:
    """Only a newline ends a line: a progress bar's carriage returns do not."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1 :]


def log_size(attempt: Attempt, stream: Stream, *, rank: int) -> int:
    return read_log(attempt, stream, rank=rank, offset=0, wait=AT_ONCE, limit=1).size


def bytes_between(attempt: Attempt, stream: Stream, *, rank: int, start: int, end: int) -> Iterator[bytes]:
    """In blocks, so that no large log is ever held in memory."""
    while start < end:
        limit = min(BLOCK_BYTES, end - start)
        data = read_log(attempt, stream, rank=rank, offset=start, wait=AT_ONCE, limit=limit).data
        if not data:
            return
        yield data
        start += len(data)
