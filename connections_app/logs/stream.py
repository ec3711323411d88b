"""Log lines as server-sent events, from an offset until the attempt has ended."""

from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from time import monotonic, sleep

from connections_app.logs.reading import NO_WAIT, read_log, whole_characters
from connections_app.logs.slots import pace, stream_slots
from engines.protocol import Stream
from jobs_app.models import Attempt, Job

KEEP_ALIVE_AFTER = timedelta(seconds=5)
"""Idle time after which a comment is sent: only a write reveals that the client has disconnected."""
LONGEST_S = 3600
"""Longest stream; the client resumes by the last event id, and its permission is checked again."""
CHECK_EVERY_S = 30.0
RETRY_S = 2
LAUNCH_PAUSE_S = 0.5
BLOCK_BYTES = 64 * 1024
KEEP_ALIVE = b": nothing new\n\n"


class LogEventStream:
    """The events of one log. The server closes it at the end or when the client disconnects, which frees its slot.

    Without a free slot it has the log as it is now, and `retry`: after which time the client comes again by itself,
    from the last event on.

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
        self._has_slot = stream_slots.take()
        self._events: Generator[bytes] = self._follow()

    def __iter__(self) -> Iterator[bytes]:
        return self._events

    def close(self) -> None:
        self._events.close()
        if self._has_slot:
            self._has_slot = False
            stream_slots.give_back()

    def _follow(self) -> Generator[bytes]:
        pause_s = RETRY_S if self._has_slot else max(RETRY_S, pace.pause_s())
        yield f"retry: {1000 * pause_s}\n\n".encode()
        until = monotonic() + LONGEST_S
        while (attempt := self._launched()) is None:
            if is_over(self._job, self._attempt):
                yield self._eof()
                return
            if not self._has_slot or monotonic() >= until or not self._is_permitted():
                return
            yield KEEP_ALIVE
        yield from self._lines_of(attempt, until)

    def _launched(self) -> Attempt | None:
        """The attempt, as soon as it has been launched; polls for a few seconds."""
        give_up_at = monotonic() + self._wait.total_seconds()
        while True:
            self._job.refresh_from_db(fields=["state"])
            found = self._attempt or self._job.attempts.exclude(launched_at=None).last()
            if found and not found.launched_at:
                found.refresh_from_db()
            if (found and found.launched_at) or is_over(self._job, self._attempt):
                return found if found and found.launched_at else None
            if monotonic() >= give_up_at:
                return None
            sleep(LAUNCH_PAUSE_S)

    def _lines_of(self, attempt: Attempt, until: float) -> Iterator[bytes]:
        held = b""
        """The beginning of a line that is not complete yet."""
        while monotonic() < until and self._is_permitted():
            at = self._offset + len(held)
            chunk = read_log(attempt, self._stream, rank=self._rank, offset=at, wait=self._wait, limit=BLOCK_BYTES)
            whole, held = whole_lines(held + chunk.data, last=chunk.eof)
            if whole:
                self._offset += len(whole)
                yield event("log", whole.decode(errors="replace"), self._offset)
            if chunk.eof:
                yield self._eof()
                return
            if not chunk.data:
                if not self._has_slot:
                    return
                yield KEEP_ALIVE

    @property
    def _wait(self) -> timedelta:
        return KEEP_ALIVE_AFTER if self._has_slot else NO_WAIT

    def _is_permitted(self) -> bool:
        if monotonic() < self._check_at_s:
            return True
        self._check_at_s = monotonic() + CHECK_EVERY_S
        return self._may_go_on()

    def _eof(self) -> bytes:
        return event("eof", "", self._offset)


def is_over(job: Job, attempt: Attempt | None) -> bool:
    """Whether nothing will be launched any more: of the attempt that was asked for, or of the job."""
    return job.is_final or (attempt is not None and attempt.state == Attempt.State.ENDED)


def whole_lines(data: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """Split into complete lines and the rest; a line longer than a block is split too, between two characters."""
    if last:
        return data, b""
    end = data.rfind(b"\n") + 1
    if not end and len(data) >= BLOCK_BYTES:
        end = len(whole_characters(data))
    return data[:end], data[end:]


def event(name: str, text: str, offset: int) -> bytes:
    """Format a server-sent event; text overwritten by a carriage return is left out, as on a terminal."""
    lines = [line.removesuffix("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {offset}\nevent: {name}\n{data}\n".encode()
