"""Programs of the web: the front with the listening sockets, and gunicorn behind it on sockets in a private folder.

The parent opens what the front listens on and keeps it: while a part is restarted nobody else can take its place, and
clients wait instead of being refused.
"""

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from connections_app.sessions.websocket import LARGEST_MESSAGE_BYTES, PING_EVERY_S
from operations.children import Program

WORKERS, THREADS = 2, 16
BACKLOG = 2048
FIRST_PASSED = 3
"""Descriptor of the first socket that systemd passes."""
LONGEST_PATH = 90
"""A socket's path has room for 107 bytes."""


def web_programs(listening: Sequence[socket.socket], folder: Path, environment: dict[str, str]) -> list[Program]:
    """Front, gunicorn, and the server of long requests, with sockets in a folder that only this account enters."""
    servers = [str(folder / f"web-{number}") for number in range(WORKERS)]
    gunicorn = [sys.executable, "-m", "gunicorn", "--config", "python:config.web_server"]
    gunicorn += ["--workers", str(WORKERS), "--threads", str(THREADS)]
    front = [sys.executable, "-m", "front", "--threads", str(THREADS)]
    descriptors = [sock.fileno() for sock in listening]
    for number in descriptors:
        front += ["--listen", str(number)]
    for server in servers:
        gunicorn += ["--bind", f"unix:{server}"]
        front += ["--web", server]
    front += ["--long", str(folder / "long")]
    return [Program(front, environment, descriptors), Program(gunicorn, environment), _long(folder, environment)]


def _long(folder: Path, environment: dict[str, str]) -> Program:
    """The server of long requests, on an event loop. uvicorn would let every account open a socket of its own."""
    listener = _listening_on(folder / "long")
    command = [sys.executable, "-m", "uvicorn", "config.long_requests:application", "--fd", str(listener)]
    command += ["--ws", "websockets-sansio", "--ws-max-size", str(LARGEST_MESSAGE_BYTES)]
    command += ["--ws-ping-interval", str(PING_EVERY_S), "--ws-per-message-deflate", "false"]
    command += ["--no-access-log", "--no-proxy-headers", "--no-server-header", "--log-level", "warning"]
    command += ["--backlog", str(BACKLOG), "--timeout-graceful-shutdown", "3"]
    return Program(command, environment, [listener])


def _listening_on(path: Path) -> int:
    """Descriptor of a listening socket that only this account may open; it stays open as long as this process."""
    path.unlink(missing_ok=True)  # of a service that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    return listener.detach()


@contextmanager
def folder_of_sockets(wanted: Path | None = None) -> Iterator[Path]:
    """Folder of mode 700: the wanted one, or a temporary one if that is too deep."""
    if wanted is not None and len(os.fsencode(wanted)) <= LONGEST_PATH:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield wanted
        return
    with TemporaryDirectory(prefix="motley-") as made:
        yield Path(made)


def listening_at(address: str, port: int) -> socket.socket:
    """A listening TCP socket; raises `OSError` if the address is in use."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=BACKLOG)


def passed_by_systemd() -> list[socket.socket]:
    """Sockets of a `.socket` unit (sd_listen_fds(3)); none without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = int(os.environ.pop("LISTEN_FDS", "0"))
    del os.environ["LISTEN_PID"]
    return [_inherited(FIRST_PASSED + number) for number in range(count)]


def _inherited(number: int) -> socket.socket:
    os.set_inheritable(number, False)
    return socket.socket(fileno=number)
