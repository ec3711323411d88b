"""Interactive sessions in running jobs, over a WebSocket: a terminal or pipes of a command, and forwarded ports.

Frames are a header `>BII` (kind, connection, length) and as many bytes; a message may hold any part of them.
"""

import json
import os
import signal
import socket
import struct
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from motley_client.errors import ServerError, Unreachable, error_of

HEADER = struct.Struct(">BII")
READ_BYTES = 64 * 1024
OPEN_WITHIN_S = 30.0
LARGEST_MESSAGE_BYTES = 2 * 1024 * 1024


class Kind(IntEnum):
    """Kinds of frames."""

    REQUEST = 0
    DATA = 1
    ERROR = 2
    RESIZE = 3
    END = 4
    EXIT = 5
    OPEN = 6


class Frame(NamedTuple):
    kind: Kind
    connection: int
    data: bytes


class Session:
    """One session; several threads may send, one receives."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._received = b""

    def send(self, kind: Kind, data: bytes = b"", connection: int = 0) -> None:
        self._websocket.send(HEADER.pack(kind, connection, len(data)) + data)

    def receive(self) -> Frame | None:
        """The next frame; None when the service has closed the session."""
        try:
            kind, connection, length = HEADER.unpack(self._take(HEADER.size))
            return Frame(Kind(kind), connection, self._take(length))
        except ConnectionClosed:
            return None

    def why_closed(self) -> str:
        return self._websocket.close_reason or "the connection broke"

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            message = self._websocket.recv()
            self._received += message if isinstance(message, bytes) else message.encode()
        taken, self._received = self._received[:size], self._received[size:]
        return taken


@contextmanager
def open_session(url: str, authorization: str, request: Mapping[str, Any]) -> Iterator[Session]:
    """A session at a WebSocket address, closed at the end; an error response is raised as its `MotleyError`."""
    with ExitStack() as stack:
        try:
            websocket = stack.enter_context(
                connect(
                    url,
                    additional_headers={"Authorization": authorization},
                    open_timeout=OPEN_WITHIN_S,
                    max_size=LARGEST_MESSAGE_BYTES,
                    compression=None,
                )
            )
        except InvalidStatus as error:
            answer = error.response
            headers = [*answer.headers.raw_items()]
            raise error_of(httpx.Response(answer.status_code, headers=headers, content=bytes(answer.body))) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise Unreachable(f"Cannot open a session at {url}: {error}") from error
        websocket.send(json.dumps(dict(request)))
        yield Session(websocket)


# -- a command ---------------------------------------------------------------------------------------------------


def terminal_here() -> dict[str, Any] | None:
    """Size and type of our terminal; None if input or output is something else."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    size = os.get_terminal_size(sys.stdout.fileno())
    return {"rows": max(size.lines, 1), "columns": max(size.columns, 1), "term": os.environ.get("TERM", "dumb")}


def attach(session: Session, *, terminal: bool) -> int:
    """Connect our standard streams to the session's command, and return its exit code."""
    with _raw_terminal(session) if terminal else nullcontext():
        threading.Thread(target=_send_input, args=(session,), daemon=True).start()
        while (frame := session.receive()) is not None:
            if frame.kind is Kind.EXIT:
                return int(frame.data)
            stream = sys.stderr.buffer if frame.kind is Kind.ERROR else sys.stdout.buffer
            stream.write(frame.data)
            stream.flush()
    raise ServerError(f"The session was closed: {session.why_closed()}.")


def output_of(session: Session) -> tuple[int, str, str]:
    """Exit code, output and errors of a session's command that reads nothing."""
    session.send(Kind.END)
    said: dict[Kind, bytes] = {Kind.DATA: b"", Kind.ERROR: b""}
    while (frame := session.receive()) is not None:
        if frame.kind is Kind.EXIT:
            return int(frame.data), said[Kind.DATA].decode(errors="replace"), said[Kind.ERROR].decode(errors="replace")
        if frame.kind in said:
            said[frame.kind] += frame.data
    raise ServerError(f"The session was closed: {session.why_closed()}.")


@contextmanager
def _raw_terminal(session: Session) -> Iterator[None]:
    """Our terminal in raw mode, its size followed."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handler = signal.signal(signal.SIGWINCH, lambda *_: session.send(Kind.RESIZE, json.dumps(_size()).encode()))
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed already is kept
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)


def _size() -> dict[str, int]:
    size = os.get_terminal_size(sys.stdout.fileno())
    return {"rows": size.lines, "columns": size.columns}


def _send_input(session: Session) -> None:
    with suppress(ConnectionClosed, OSError, ValueError):  # the session, or our input, has been closed
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            session.send(Kind.DATA, data)
        session.send(Kind.END)


# -- a port ------------------------------------------------------------------------------------------------------


def network_here() -> str:
    """Boot of the kernel and our network namespace, by which a job's session knows its own; empty: not on Linux."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return ""


class Forwarding:
    """Connections that a local socket accepts, each carried to the session's port."""

    def __init__(self, session: Session, server: socket.socket, *, on_error: Callable[[str], object]) -> None:
        self._session = session
        self._server = server
        self._on_error = on_error
        self._listener = json.dumps({"network": network_here(), "port": server.getsockname()[1]}).encode()
        self._open: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Serve until the session ends, which raises `ServerError`."""
        threading.Thread(target=self._accept, daemon=True).start()
        while (frame := self._session.receive()) is not None:
            if (connection := self._open.get(frame.connection)) is not None:
                self._deliver(frame, connection)
            elif frame.kind is Kind.ERROR:
                self._on_error(frame.data.decode(errors="replace").strip())
        raise ServerError(f"The session was closed: {self._session.why_closed()}.")

    def _accept(self) -> None:
        with suppress(OSError, ConnectionClosed):
            for number in count(1):
                connection, _ = self._server.accept()
                self._open[number] = connection
                self._session.send(Kind.OPEN, self._listener, number)
                threading.Thread(target=self._pump, args=(number, connection), daemon=True).start()

    def _pump(self, number: int, connection: socket.socket) -> None:
        with suppress(ConnectionClosed):
            with suppress(OSError):
                while data := connection.recv(READ_BYTES):
                    self._session.send(Kind.DATA, data, number)
            self._session.send(Kind.END, connection=number)
        self._open.pop(number, None)
        connection.close()

    def _deliver(self, frame: Frame, connection: socket.socket) -> None:
        with suppress(OSError):  # it was closed here
            if frame.kind is Kind.DATA:
                connection.sendall(frame.data)
            elif frame.kind is Kind.ERROR:
                self._on_error(frame.data.decode(errors="replace").strip())
                connection.shutdown(socket.SHUT_RDWR)
            else:
                connection.shutdown(socket.SHUT_WR)
