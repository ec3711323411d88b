"""Session socket of an attempt: a Unix socket through which a web server in another container starts sessions.

It shares the folder of the attempt with us, and neither the PID namespace nor the GPUs. Its connection becomes input
and output of `engines.sessions.enter`, a child of ours, which ends with the attempt.
"""

import os
import selectors
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engines.attempt_files import AttemptFolder
from engines.supervision.rank import PACKAGE_PARENT, PYTHON

RANK_FROM_INPUT = "-"
RANK_BYTES = 4
"""With these, the rank as a big-endian number, the client begins."""
MOST_SESSIONS = 64
ALIVE = 1
"""What `pump` answers as long as there is something to come."""


ENV = {"PATH": os.defpath, "LANG": "C.UTF-8"}


class SessionSocket:
    """Listens at `folder.session_socket`, which nobody but the account of the service may open."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        with short_path(folder.session_socket) as path, _umask(0o177):
            self._socket.bind(path)
        self._socket.listen()
        self._socket.setblocking(False)

    def register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._socket, selectors.EVENT_READ, self)

    def pump(self, _: int) -> int:
        """Let one client in."""
        self._children = [child for child in self._children if child.poll() is None]
        with suppress(OSError):
            connection, _address = self._socket.accept()
            with connection:
                if len(self._children) < MOST_SESSIONS:
                    self._children.append(self._begin(connection))
        return ALIVE

    def collect(self) -> None:
        """Reap the sessions that have ended."""
        for child in self._children:
            child.poll()

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self._folder.session_socket.unlink()

    def _begin(self, connection: socket.socket) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own program; the user's words reach it by its input
            [*PYTHON, "engines.sessions.enter", str(self._folder.path), RANK_FROM_INPUT],
            cwd=PACKAGE_PARENT,
            env=ENV,
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            start_new_session=True,
        )


def open_socket(folder: AttemptFolder) -> SessionSocket | None:
    """The session socket of the attempt; None on a file system without sockets, which the job does not need."""
    try:
        return SessionSocket(folder)
    except OSError:
        return None


def connect(path: Path, rank: int) -> socket.socket:
    """A connection on which a session in the rank begins; OSError: nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    with short_path(path) as address:
        connection.connect(address)
    connection.sendall(rank.to_bytes(RANK_BYTES, "big"))
    return connection


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path by its folder's descriptor: the address of a socket has 107 bytes at most."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
