"""Relay of bytes between a WebSocket and the process of a session, until either ends or both are idle.

Two threads copy, each in its direction, and may block for ever on a side that does not read; the third looks after
them, and ends the session whatever they do.
"""

import logging
import os
import select
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, cast

from django.conf import settings
from django.contrib.auth.models import User
from websockets.exceptions import ConnectionClosed
from websockets.sync.connection import Connection

from connections_app.errors import TooManySessions
from engines.protocol import SessionCommand

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
LOOK_S = 1.0
CHECK_EVERY_S = 60.0
MOST_FAILED_CHECKS = 5
"""In a row, as while the database restarts; then the session ends."""
END_WITHIN_S = 10.0
COMPLAINT_BYTES = 1000
NORMAL, POLICY = 1000, 1008
"""Codes of RFC 6455 with which the service closes."""
Process = subprocess.Popen[bytes]


class SessionSlots:
    """Counting semaphore of open sessions, each of which keeps a thread; a user has half of them at most."""

    def __init__(self) -> None:
        self._lock, self._open = threading.Lock(), Counter[int]()

    @contextmanager
    def slot_for(self, user: User) -> Iterator[None]:
        """Hold a slot; raises `TooManySessions`."""
        most = settings.MOTLEY_SESSIONS
        with self._lock:
            if self._open[user.pk] >= max(most // 2, 1):
                raise TooManySessions(self._open[user.pk], whose="You have")
            if self._open.total() >= most:
                raise TooManySessions(most, whose="This process has")
            self._open[user.pk] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[user.pk] -= 1


session_slots = SessionSlots()


class Relay:
    """One session; `check` is called every minute, with whether it was in use since, and says if it may go on."""

    def __init__(self, websocket: Connection, *, idle: timedelta, check: Callable[[bool], bool]) -> None:
        self._websocket = websocket
        self._idle_s = idle.total_seconds()
        self._check = check
        self._active_at_s = monotonic()
        self._failed_checks = 0
        self._over = threading.Event()

    def run(self, command: SessionCommand, first: bytes) -> None:
        """Start the session's process with the first bytes, and relay until the end."""
        with TemporaryFile() as complaints:
            process = subprocess.Popen(  # noqa: S603 - our own program; the user's words reach it by its input
                command.argv,
                cwd=command.folder,
                env=dict(command.env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
            copies = (self._copy_input, self._copy_output)
            threads = [threading.Thread(target=copy, args=(process, first), daemon=True) for copy in copies]
            try:
                for thread in threads:
                    thread.start()
                self._close(*self._reason_to_end())
            finally:
                _end(process)
                with suppress(OSError):
                    self._websocket.socket.shutdown(socket.SHUT_RDWR)
                for thread in threads:  # both sides are gone
                    thread.join(END_WITHIN_S)
                cast("IO[bytes]", process.stdout).close()
            _log_complaints(complaints)

    def _reason_to_end(self) -> tuple[int, str]:
        """Wait for the end of the session: code and words for the client."""
        check_at_s = monotonic() + CHECK_EVERY_S
        while not self._over.wait(LOOK_S):
            now_s = monotonic()
            if self._client_is_gone():
                return NORMAL, "the client has gone"
            if now_s - self._active_at_s > self._idle_s:
                return NORMAL, f"idle for {timedelta(seconds=int(self._idle_s))}"
            if now_s > check_at_s:
                check_at_s = now_s + CHECK_EVERY_S
                if not self._may_go_on(in_use=now_s - self._active_at_s < CHECK_EVERY_S):
                    return POLICY, "no longer permitted"
        return NORMAL, "the session has ended"

    def _client_is_gone(self) -> bool:
        """Whether the other end of the connection is closed: neither copy notices it, if the one waits for a process
        that does not read and the other for one that does not write."""
        poll = select.poll()
        try:
            poll.register(self._websocket.socket, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed on our side
            return True

    def _may_go_on(self, *, in_use: bool) -> bool:
        try:
            permitted = self._check(in_use)
        except Exception:
            log.exception("a session could not be checked")
            self._failed_checks += 1
            return self._failed_checks < MOST_FAILED_CHECKS
        self._failed_checks = 0
        return permitted

    def _copy_input(self, process: Process, first: bytes) -> None:
        stdin = cast("IO[bytes]", process.stdin)
        with suppress(ConnectionClosed):
            _write(stdin, first)
            for message in self._websocket:
                self._active_at_s = monotonic()
                _write(stdin, message if isinstance(message, bytes) else message.encode())
        self._over.set()

    def _copy_output(self, process: Process, _: bytes) -> None:
        stdout = cast("IO[bytes]", process.stdout)
        with suppress(ConnectionClosed, OSError, ValueError):
            while data := os.read(stdout.fileno(), READ_BYTES):
                self._websocket.send(data)
                self._active_at_s = monotonic()
        self._over.set()

    def _close(self, code: int, words: str) -> None:
        """Close the WebSocket; a client that does not read would block us, so that we wait for a while only."""
        closing = threading.Thread(target=self._websocket.close, args=(code, words), daemon=True)
        closing.start()
        closing.join(END_WITHIN_S)


def _end(process: Process) -> None:
    """End the process: at the end of its input it ends what it has started."""
    threading.Thread(target=_close_input, args=(process,), daemon=True).start()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _close_input(process: Process) -> None:
    """Close the process's input; that waits for a write under way."""
    with suppress(OSError, ValueError):
        cast("IO[bytes]", process.stdin).close()


def _log_complaints(complaints: IO[bytes]) -> None:
    complaints.seek(0)
    if words := complaints.read(COMPLAINT_BYTES).decode(errors="replace").strip():
        log.warning("a session's process said: %s", words)


def _write(stdin: IO[bytes], data: bytes) -> None:
    """Write to the process; if it has ended, the end of its output says so."""
    with suppress(OSError, ValueError):
        stdin.write(data)
        stdin.flush()
