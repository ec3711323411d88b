"""Log lines as server-sent events, from an offset until the attempt has ended."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from time import monotonic, sleep

from django.conf import settings

from engines.protocol import Stream
from jobs_app.models import Attempt, Job
from scheduler_app.errors import TooManyStreams
from scheduler_app.logs.reading import read_log

KEEP_ALIVE_AFTER = timedelta(seconds=5)
"""Idle time after which a comment is sent: only a write reveals that the client has disconnected."""
LONGEST_S = 3600
"""Longest stream; the client resumes by the last event id, and its permission is checked again."""
CHECK_EVERY_S = 30.0
LAUNCH_PAUSE_S = 0.5
BLOCK_BYTES = 64 * 1024
KEEP_ALIVE = b": nothing new\n\n"


class StreamSlots:
    """Counting semaphore of open streams: each occupies a thread, and other requests need threads too."""

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

    @contextmanager
    def slot_if_free(self) -> Iterator[bool]:
        """Hold a slot, if one is free; whether one was."""
        try:
            self.take()
        except TooManyStreams:
            yield False
            return
        try:
            yield True
        finally:
            self.give_back()


stream_slots = StreamSlots()


class LogEventStream:
    """The events of one log. The server closes it at the end or when the client disconnects, which frees its slot.

    A generator alone would not do: one that was never started does not run its `finally`.
    """

    def __init__(
        self,
        job: Job,
        attempt: Attempt | None,
        stream: Stream,
        *,
        rank: int,
        offset: int,
        may_go_on: Callable[[], bool],
    ) -> None:
        """`may_go_on` is asked every half a minute: whether the caller may still see the job."""
        self._job, self._attempt, self._stream, self._rank, self._offset = job, attempt, stream, rank, offset
        self._may_go_on, self._check_at_s = may_go_on, monotonic() + CHECK_EVERY_S
        stream_slots.take()
        self._open = True
        self._events: Generator[bytes] = self._follow()

    def __iter__(self) -> Iterator[bytes]:
        return self._events

    def close(self) -> None:
        if self._open:
            self._open = False
            self._events.close()
            stream_slots.give_back()

    def _follow(self) -> Generator[bytes]:
        yield b"retry: 2000\n\n"
        until = monotonic() + LONGEST_S
        while (attempt := self._launched()) is None:
            if self._job.is_final:
                yield self._eof()
                return
            if monotonic() >= until or not self._is_permitted():
                return
            yield KEEP_ALIVE
        yield from self._lines_of(attempt, until)

    def _launched(self) -> Attempt | None:
        """The attempt, as soon as it has been launched; polls for a few seconds."""
        give_up_at = monotonic() + KEEP_ALIVE_AFTER.total_seconds()
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
        """The beginning of a line that is not complete yet."""
        while monotonic() < until and self._is_permitted():
            at = self._offset + len(held)
            chunk = read_log(
                attempt, self._stream, rank=self._rank, offset=at, wait=KEEP_ALIVE_AFTER, limit=BLOCK_BYTES
            )
            whole, held = _whole_lines(held + chunk.data, last=chunk.eof)
            if whole:
                self._offset += len(whole)
                yield _event("log", whole.decode(errors="replace"), self._offset)
            if chunk.eof:
                yield self._eof()
                return
            if not chunk.data:
                yield KEEP_ALIVE

    def _is_permitted(self) -> bool:
        if monotonic() < self._check_at_s:
            return True
        self._check_at_s = monotonic() + CHECK_EVERY_S
        return self._may_go_on()

    def _eof(self) -> bytes:
        return _event("eof", "", self._offset)


def _whole_lines(data: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """Split into complete lines and the rest; a line longer than a block is split too."""
    if last or len(data) >= BLOCK_BYTES:
        return data, b""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _event(name: str, text: str, offset: int) -> bytes:
    """Format a server-sent event; text overwritten by a carriage return is left out, as on a terminal."""
    lines = [line.removesuffix("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {offset}\nevent: {name}\n{data}\n".encode()
