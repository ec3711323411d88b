"""Programs of the web: the front with the listening sockets; gunicorn and uvicorn behind it, in a private folder.

The parent opens what the front listens on and keeps it: while a part is restarted nobody else can take its place, and
clients wait instead of being refused.
"""

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from gunicorn.app.wsgiapp import WSGIApplication

from connections_app.sessions.websocket import LARGEST_MESSAGE_BYTES, PING_EVERY_S
from operations.children import Program, executing

WORKERS, THREADS = 2, 16
BACKLOG = 2048
FIRST_PASSED = 3
"""Descriptor of the first socket that systemd passes."""
LONGEST_PATH = 90
"""A socket's path has room for 107 bytes."""


def web_programs(listening: Sequence[int], folder: Path) -> list[Program]:
    """Front, gunicorn, and the server of long requests, with sockets in a folder that only this account enters."""
    servers = [str(folder / f"web-{number}") for number in range(WORKERS)]
    long = _listening_on(folder / "long")
    return [
        Program("front", executing(_front(listening, servers, folder / "long"), listening), listening),
        Program("web", partial(_serve_short_requests, [f"unix:{server}" for server in servers])),
        Program("long", partial(_serve_long_requests, long), [long]),
    ]


def _front(listening: Sequence[int], servers: Sequence[str], long: Path) -> list[str]:
    """Command of the front: a program of its own, for it needs nothing of ours and reads what anybody sends."""
    command = [sys.executable, "-m", "front", "--threads", str(THREADS), "--long", str(long)]
    for number in listening:
        command += ["--listen", str(number)]
    for server in servers:
        command += ["--web", server]
    return command


class _ShortRequests(WSGIApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn with the settings of `config.web_server`, whatever the command line says."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        super().__init__()

    def load_config(self) -> None:
        self.load_config_from_module_name_or_filename("python:config.web_server")
        for name, value in {"bind": self._addresses, "workers": WORKERS, "threads": THREADS}.items():
            self.cfg.set(name, value)
        self.app_uri = self.cfg.wsgi_app


def _serve_short_requests(addresses: Sequence[str]) -> None:
    _ShortRequests(addresses).run()


def _serve_long_requests(descriptor: int) -> None:
    """On an event loop. uvicorn would let every account open a socket of its own."""
    uvicorn.run(
        "config.long_requests:application",
        fd=descriptor,
        ws="websockets-sansio",
        ws_max_size=LARGEST_MESSAGE_BYTES,
        ws_ping_interval=PING_EVERY_S,
        ws_per_message_deflate=False,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_level="warning",
        backlog=BACKLOG,
        timeout_graceful_shutdown=3,
    )


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
