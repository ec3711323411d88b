"""Relay of bytes between a WebSocket and the process of a session, until either ends or both are idle.

Two tasks of the event loop copy, each in its direction, and may wait for ever on a side that does not read; the third
looks after them, and ends the session whatever they do.
"""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Protocol

from engines.protocol import SessionCommand

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
POLL_S = 1.0
CHECK_EVERY_S, ENDS_WITHIN_S = 60.0, 3.0
"""Whether the session may go on costs more than whether its attempt runs, which ends it soon."""
MOST_FAILED_CHECKS = 5
"""In a row, as while the database restarts; then the session ends."""
END_WITHIN_S = 10.0
COMPLAINT_BYTES = 1000
MOST_UNREAD_BYTES, FULL_FOR_S = 8 << 20, 60.0
"""What a process may leave unread, and for how long nothing more is taken."""
NORMAL, POLICY = 1000, 1008
"""Codes of RFC 6455 with which the service closes."""
Process = asyncio.subprocess.Process


class WebSocket(Protocol):
    """The client's side."""

    async def receive(self) -> bytes | None:
        """The next message; None when the client has disconnected."""

    async def send(self, data: bytes) -> None: ...

    async def close(self, code: int, words: str) -> None: ...


class Relay:
    """One session; `check` is called every minute with whether it was used, and returns whether it may continue.

    `runs` is called every few seconds in which no byte moves: whether that in which the session is has not ended.
    While a slow reader has yet to take the last output, the end waits for the next `check`.

    `to_the_end`: what the other side has sent before its end is still given to the process, however slowly that reads,
    which then ends the session. So it is at the end of a server: its agent has sent the last of a rank and gone, long
    before a person has read it. A client that goes has nothing more to say.
    """

    def __init__(
        self,
        websocket: WebSocket,
        *,
        idle: timedelta,
        check: Callable[[bool], Awaitable[bool]],
        runs: Callable[[], Awaitable[bool]] | None = None,
        to_the_end: bool = False,
    ) -> None:
        self._websocket, self._check, self._to_the_end = websocket, check, to_the_end
        self._runs = runs
        self._idle_s = idle.total_seconds()
        self._active_at_s = monotonic()
        self._failed_checks = 0
        self._gone = self._is_sending = False
        self._unread: deque[bytes] = deque()
        self._unread_bytes, self._full_since_s = 0, 0.0
        self._changed = asyncio.Event()
        """Set when something is unread, or no longer."""

    async def run(self, command: SessionCommand, first: bytes) -> None:
        """Start the session's process with the first bytes, and relay until the end."""
        with TemporaryFile() as complaints:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                cwd=command.folder,
                env=dict(command.env),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
            received, given, said = (
                asyncio.create_task(copy)
                for copy in (self._receive(first), self._input(process), self._output(process))
            )
            copies = {received, given, said}
            try:
                ends = {said} if self._to_the_end else copies
                await self._close(*await self._reason_to_end(ends))
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
                await _end(process)
            _log_complaints(complaints)

    async def _reason_to_end(self, ends: set[asyncio.Task[None]]) -> tuple[int, str]:
        """Wait for the end of the session, that of the first of these: code and words for the client."""
        check_at_s, look_at_s = monotonic() + CHECK_EVERY_S, monotonic() + ENDS_WITHIN_S
        while not (await asyncio.wait(ends, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            now_s = monotonic()
            if now_s - self._active_at_s > self._idle_s:
                return NORMAL, f"idle for {timedelta(seconds=int(self._idle_s))}"
            if self._full_since_s and now_s - self._full_since_s > FULL_FOR_S:
                return NORMAL, "what was sent is not read"
            if now_s > check_at_s:
                check_at_s = now_s + CHECK_EVERY_S
                if not await self._may_go_on(in_use=now_s - self._active_at_s < CHECK_EVERY_S):
                    return POLICY, "no longer permitted"
            if now_s > look_at_s:
                look_at_s = now_s + ENDS_WITHIN_S
                if self._is_still(now_s) and not await self._still_runs():
                    return NORMAL, "the attempt has ended"
        return NORMAL, "the client has gone" if self._gone else "the session has ended"

    async def _may_go_on(self, *, in_use: bool) -> bool:
        try:
            permitted = await self._check(in_use)
        except Exception:
            log.exception("a session could not be checked")
            self._failed_checks += 1
            return self._failed_checks < MOST_FAILED_CHECKS
        self._failed_checks = 0
        return permitted

    def _is_still(self, now_s: float) -> bool:
        """Whether nothing is on its way."""
        return not self._is_sending and not self._unread_bytes and now_s - self._active_at_s >= ENDS_WITHIN_S

    async def _still_runs(self) -> bool:
        """Whether it runs, as far as the database says: while that does not answer, `check` counts how long."""
        try:
            return self._runs is None or await self._runs()
        except Exception:
            log.exception("whether the attempt of a session runs is not known")
            return True

    async def _receive(self, first: bytes) -> None:
        """Keep what the client sends until the process reads it, so that its end is seen meanwhile."""
        message: bytes | None = first
        try:
            while message is not None:
                self._keep(message)
                await self._room()
                message = await self._websocket.receive()
                self._active_at_s = monotonic()
        finally:
            self._gone = True
            self._changed.set()

    async def _room(self) -> None:
        """Wait while more is unread than is kept. Nothing ends a session for a slow reader beyond its own process."""
        while self._unread_bytes > MOST_UNREAD_BYTES:
            if not self._to_the_end:
                self._full_since_s = self._full_since_s or monotonic()
            self._changed.clear()
            await self._changed.wait()
        self._full_since_s = 0.0

    def _keep(self, message: bytes) -> None:
        self._unread.append(message)
        self._unread_bytes += len(message)
        self._changed.set()

    async def _input(self, process: Process) -> None:
        """Copy to the process; if it has ended, the end of its output says so."""
        assert process.stdin is not None  # noqa: S101 - a pipe
        while True:
            while not self._unread:
                if self._gone and self._to_the_end:
                    process.stdin.close()
                    return
                self._changed.clear()
                await self._changed.wait()
            message = self._unread.popleft()
            with suppress(ConnectionError):
                process.stdin.write(message)
                await process.stdin.drain()
            self._unread_bytes -= len(message)
            self._active_at_s = monotonic()
            self._changed.set()

    async def _output(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101 - a pipe
        while data := await process.stdout.read(READ_BYTES):
            self._is_sending = True
            with suppress(OSError) if self._to_the_end else nullcontext():  # it has gone, and the rest is still read
                await self._websocket.send(data)
            self._is_sending = False
            self._active_at_s = monotonic()

    async def _close(self, code: int, words: str) -> None:
        """Close the WebSocket; a client that does not read would block us, so that we wait for a while only."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN_S):
                await self._websocket.close(code, words)


async def _end(process: Process) -> None:
    """End the process: at the end of its input it ends what it has started. Its output is read to the end meanwhile,
    since asyncio waits for that, too."""
    assert process.stdin is not None  # noqa: S101 - a pipe
    assert process.stdout is not None  # noqa: S101
    process.stdin.close()
    try:
        async with asyncio.timeout(END_WITHIN_S):
            while await process.stdout.read(READ_BYTES):
                pass
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process._transport.close()  # type: ignore[attr-defined]  # others may hold the pipes open
        await process.wait()


def _log_complaints(complaints: IO[bytes]) -> None:
    complaints.seek(0)
    if words := complaints.read(COMPLAINT_BYTES).decode(errors="replace").strip():
        log.warning("a session's process said: %s", words)
