"""Read logs of attempts: from an offset, the last bytes or lines, between two offsets; and as plain text."""

import re
from codecs import utf_8_decode
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from time import monotonic, sleep

from django.utils import timezone

from connections_app.engine_registry import engine_named
from engines.protocol import Engine, LogChunk, Stream
from jobs_app.models import Attempt

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
BLOCK_BYTES = 64 * 1024
NO_WAIT = timedelta()
LONGEST_WAIT = timedelta(seconds=5)
POLL_INTERVAL_S = 0.2
LATE = timedelta(minutes=1)
"""After the end of an attempt whose engine does not say that its log is complete: its machine was lost, say."""


class AttemptLog:
    """The logs of an attempt, read through its engine, which is looked up once."""

    def __init__(self, attempt: Attempt, engine: Engine | None = None) -> None:
        self.attempt, self._engine = attempt, engine or engine_named(attempt.engine)
        ended_at = attempt.ended_at if attempt.state == Attempt.State.ENDED else None
        self._is_past = ended_at is not None and timezone.now() - ended_at > LATE

    def read(self, stream: Stream, rank: int, offset: int, limit: int) -> LogChunk:
        """Bytes from the offset; where a machine was lost, the log ends a while after its attempt has."""
        chunk = self._engine.logs(self.attempt.pk, stream, rank, offset, limit)
        is_end = self._is_past and chunk.next_offset >= chunk.size
        return replace(chunk, eof=True) if is_end and not chunk.eof else chunk

    def size(self, stream: Stream, rank: int) -> int:
        return self.read(stream, rank, 0, 1).size

    def between(self, stream: Stream, rank: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes between two offsets in blocks, so that no large log is held in memory."""
        while start < end and (data := self.read(stream, rank, start, min(BLOCK_BYTES, end - start)).data):
            yield data
            start += len(data)


def read_log(attempt: Attempt, stream: Stream, *, rank: int, offset: int, wait: timedelta, limit: int) -> LogChunk:
    """Read a log from an offset; if nothing is there, poll for up to `wait`."""
    log = AttemptLog(attempt)
    until = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    while True:
        chunk = log.read(stream, rank, offset, limit)
        if chunk.data or chunk.eof or monotonic() >= until:
            return chunk
        sleep(POLL_INTERVAL_S)


def start_of_last_lines(log: AttemptLog, stream: Stream, *, rank: int, lines: int) -> int:
    """Offset at which the last lines of a log begin; an unfinished last line counts as a line."""
    at = size = log.size(stream, rank)
    found = 0
    while at > 0:
        begin = max(0, at - BLOCK_BYTES)
        data = log.read(stream, rank, begin, at - begin).data
        newlines = data.count(b"\n", 0, len(data) - (at == size and data.endswith(b"\n")))
        if found + newlines >= lines:
            return begin + _after_newline(data, at == size, lines - found)
        found, at = found + newlines, begin
    return 0


def _after_newline(data: bytes, is_end: bool, number: int) -> int:
    """Offset after the so manieth newline from the end; one that ends the log is not counted."""
    at = len(data) - (is_end and data.endswith(b"\n"))
    for _ in range(number):
        at = data.rfind(b"\n", 0, at)
    return at + 1


def whole_characters(data: bytes) -> bytes:
    """The data without the beginning of a UTF-8 character at its end."""
    return data[: utf_8_decode(data, "replace", False)[1]]


def readable(data: bytes) -> str:
    """Convert terminal output to plain text: no control sequences, each line as a terminal shows it in the end."""
    text = ESCAPES.sub("", data.decode(errors="replace"))
    return CONTROLS.sub("", "\n".join(map(_last_written, text.split("\n"))))


def _last_written(line: str) -> str:
    """The part of a line after its carriage returns. A pattern that searched it would be quadratic without one."""
    return line.rstrip("\r").rpartition("\r")[2]
