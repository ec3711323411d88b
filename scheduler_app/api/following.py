"""Logs as server-sent events: lines as they are written, until the attempt has ended."""

from collections.abc import Generator, Iterator
from datetime import timedelta
from threading import Lock
from time import monotonic, sleep

from django.conf import settings

from engines.protocol import Stream
from jobs_app.models import Attempt, Job
from scheduler_app.errors import TooManyStreams
from scheduler_app.looking import read_log

PATIENCE = timedelta(seconds=5)
"""After so long without a word a comment is sent: only who writes learns that the other side has gone."""
LONGEST_S = 3600
"""A stream that ends without `eof` is resumed by its id, and who may see the job is asked anew."""
LAUNCH_PAUSE_S = 0.5
BLOCK_BYTES = 64 * 1024
KEEP_ALIVE = b": nothing new\n\n"


class Places:
    """How many streams this process has open: each keeps a thread, and there must be some for everybody else."""

    def __init__(self) -> None:
        self._lock, self._taken = Lock(), 0

    def take(self) -> None:
        with self._lock:
            if self._taken >= settings.MOTLEY_LOG_STREAMS:
                raise TooManyStreams(settings.MOTLEY_LOG_STREAMS)
            self._taken += 1

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1


places = Places()


class Following:
    """The events of one log. Whoever is done with it, or was left by its reader, closes it, and its place is free.

    A generator alone would not do: one that was never begun does not run its `finally`.
    """

    def __init__(self, job: Job, attempt: Attempt | None, stream: Stream, *, rank: int, offset: int) -> None:
        self._job, self._attempt, self._stream, self._rank, self._offset = job, attempt, stream, rank, offset
        places.take()
        self._open = True
        self._events: Generator[bytes] = self._follow()

    def __iter__(self) -> Iterator[bytes]:
        return self._events

    def close(self) -> None:
        if self._open:
            self._open = False
            self._events.close()
            places.give_back()

    def _follow(self) -> Generator[bytes]:
        yield b"retry: 2000\n\n"
        until = monotonic() + LONGEST_S
        while (attempt := self._launched()) is None:
            if self._job.is_final:
                yield self._eof()
                return
            yield KEEP_ALIVE
        yield from self._lines_of(attempt, until)

    def _launched(self) -> Attempt | None:
        """The attempt, once it has been launched; waits a little for it."""
        give_up_at = monotonic() + PATIENCE.total_seconds()
        while monotonic() < give_up_at:
            self._job.refresh_from_db(fields=["state"])
            found = self._attempt or self._job.attempts.exclude(launched_at=None).last()
            if found and not found.launched_at:
                found.refresh_from_db()
            if (found and found.launched_at) or self._job.is_final:
                return found if found and found.launched_at else None
            sleep(LAUNCH_PAUSE_S)
        return None

    def _lines_of(self, attempt: Attempt, until: float) -> Iterator[bytes]:
        held = b""
        """The beginning of a line whose end has not been written."""
        while monotonic() < until:
            at = self._offset + len(held)
            chunk = read_log(attempt, self._stream, rank=self._rank, offset=at, wait=PATIENCE, limit=BLOCK_BYTES)
            whole, held = _whole_lines(held + chunk.data, last=chunk.eof)
            if whole:
                self._offset += len(whole)
                yield _event("log", whole.decode(errors="replace"), self._offset)
            if chunk.eof:
                yield self._eof()
                return
            if not chunk.data:
                yield KEEP_ALIVE

    def _eof(self) -> bytes:
        return _event("eof", "", self._offset)


def _whole_lines(data: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """The lines that are complete, and the beginning of the next; a very long one is parted."""
    if last or len(data) >= BLOCK_BYTES:
        return data, b""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _event(name: str, text: str, offset: int) -> bytes:
    """Each line of the text on a line of its own; what a carriage return overwrote is left out, as on a terminal."""
    lines = [line.removesuffix("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {offset}\nevent: {name}\n{data}\n".encode()
