"""PostgreSQL and Redis of our own: each in a folder and on a port of its own, and gone with whoever started them.

As a program it runs a command against a new database: python tests/private_servers.py pytest tests/jobs
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

POSTGRESQL = Path("/usr/lib/postgresql/15/bin")
UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""
PATIENCE_S = 60
FOR_TESTS = ("fsync=off", "full_page_writes=off", "max_connections=100")
"""Nobody cuts the power of a test; a killed server still finds all that it wrote."""


class Server:
    """A process that can be killed and started again on the same folder and port."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command, self.log, self.environment = tuple(command), log, environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = ["setpriv", "--pdeathsig", "QUIT", *self.command]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd="/"
            )

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)


def postgresql_server(folder: Path, port: int) -> Server:
    """One that is set up in `folder`, with the superuser motley; not started yet."""
    data = folder / "data"
    data.mkdir()
    if os.geteuid() == 0:
        folder.chmod(0o711)
        shutil.chown(data, UNPRIVILEGED)
    options = ("-U", "motley", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8")
    _run([*as_unprivileged(), str(POSTGRESQL / "initdb"), "-D", str(data), *options])
    wanted = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={data}", *FOR_TESTS)
    words = ["-D", str(data), *(word for setting in wanted for word in ("-c", setting))]
    return Server([*as_unprivileged(), str(POSTGRESQL / "postgres"), *words], folder / "postgresql.log")


def as_unprivileged() -> list[str]:
    """The words before a command that root may not run."""
    if os.geteuid() != 0:
        return []
    group = subprocess.run(["id", "-gn", UNPRIVILEGED], check=True, capture_output=True, text=True).stdout.strip()
    return ["setpriv", "--reuid", UNPRIVILEGED, "--regid", group, "--clear-groups"]


def accepts_connections(port: int) -> bool:
    where = ("-h", "127.0.0.1", "-p", str(port), "-U", "motley", "-d", "postgres")
    return subprocess.run([str(POSTGRESQL / "pg_isready"), "-q", *where], check=False).returncode == 0


@contextmanager
def postgresql() -> Iterator[str]:
    """A new database; its address is as in MOTLEY_DATABASE."""
    with private_folder("motley-postgresql-") as folder:
        port = free_port()
        server = postgresql_server(folder, port)
        server.start()
        try:
            _wait_for(server, lambda: accepts_connections(port))
            yield f"postgresql://motley@127.0.0.1:{port}/postgres"
        finally:
            server.end(signal.SIGINT)  # without waiting for its clients


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(server: Server, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert server.is_running(), server.log.read_text()
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.05)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr


def main() -> int:
    """Run the command with MOTLEY_DATABASE set; its exit code is ours."""
    with postgresql() as address:
        return subprocess.run(sys.argv[1:], check=False, env=os.environ | {"MOTLEY_DATABASE": address}).returncode


if __name__ == "__main__":
    sys.exit(main())
