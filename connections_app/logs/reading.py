"""Read logs of attempts: from an offset, the last bytes or lines, between two offsets; and as plain text."""

import re
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic, sleep

from connections_app.engine_registry import engine_named
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
BLOCK_BYTES = 64 * 1024
LONGEST_TAIL_BYTES = 1024 * 1024
NO_WAIT = timedelta()
LONGEST_WAIT = timedelta(seconds=5)
POLL_INTERVAL_S = 0.2


def read_log(attempt: Attempt, stream: Stream, *, rank: int, offset: int, wait: timedelta, limit: int) -> LogChunk:
    """Read a log from an offset; if nothing is there, poll for up to `wait`."""
    engine = engine_named(attempt.engine)
    until = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    while True:
        chunk = engine.logs(attempt.pk, stream, rank, offset, limit)
        if chunk.data or chunk.eof or monotonic() >= until:
            return chunk
        sleep(POLL_INTERVAL_S)


def last_lines(attempt: Attempt, stream: Stream, *, rank: int, lines: int) -> LogChunk:
    """The last lines of a log, at most a megabyte; an unfinished last line counts as a line."""
    size = log_size(attempt, stream, rank=rank)
    start = size
    data = b""
    while start > 0 and len(data) < LONGEST_TAIL_BYTES and data[:-1].count(b"\n") < lines:
        step = min(BLOCK_BYTES, start)
        start -= step
        data = read_log(attempt, stream, rank=rank, offset=start, wait=NO_WAIT, limit=step).data + data
    tail = _last(data, lines)
    chunk = read_log(attempt, stream, rank=rank, offset=size, wait=NO_WAIT, limit=1)
    return LogChunk(tail, offset=size - len(tail), next_offset=size, size=size, eof=chunk.eof and chunk.size == size)


def _last(data: bytes, lines: int) -> bytes:
    """Cut to the last lines; only a newline ends a line, not a carriage return."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1 :]


def log_size(attempt: Attempt, stream: Stream, *, rank: int) -> int:
    """Size of a log in bytes."""
    return read_log(attempt, stream, rank=rank, offset=0, wait=NO_WAIT, limit=1).size


def bytes_between(attempt: Attempt, stream: Stream, *, rank: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two offsets in blocks, so that no large log is held in memory."""
    while start < end:
        limit = min(BLOCK_BYTES, end - start)
        data = read_log(attempt, stream, rank=rank, offset=start, wait=NO_WAIT, limit=limit).data
        if not data:
            return
        yield data
        start += len(data)


def readable(data: bytes) -> str:
    """Convert terminal output to plain text: no control sequences, each line as a terminal shows it in the end."""
    text = ESCAPES.sub("", data.decode(errors="replace"))
    return CONTROLS.sub("", "\n".join(map(_last_written, text.split("\n"))))


def _last_written(line: str) -> str:
    """The part of a line after its carriage returns. A pattern that searched it would be quadratic without one."""
    return line.rstrip("\r").rpartition("\r")[2]
