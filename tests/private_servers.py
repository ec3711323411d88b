"""Private PostgreSQL and Redis: each in a folder and on a port of its own, ended with the process that started them.

As a program it runs a command against a new database: python -m tests.private_servers pytest tests/jobs
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

POSTGRESQL = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))
"""Debian keeps them apart by version; 15 is what the full stack has."""
UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""
PATIENCE_S = 300
FIRST_PORT, PORTS = 10_000, 20_000
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw")) + 1
"""Number of this pytest-xdist worker, from 1; 0: this process is not a worker."""
GIVEN: set[int] = set()
"""Ports that this process has named, whose servers may not listen yet."""
FOR_TESTS = ("fsync=off", "full_page_writes=off", "max_connections=100")
"""A test needs no protection against power loss; a killed server still finds all that it wrote."""


class Server:
    """A process that can be killed and started again on the same folder and port; it ends with us."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path = Path("/"),
        before: Sequence[str] = (),
    ) -> None:
        self.command = ["setpriv", *before, "--pdeathsig", "QUIT", *command]
        self.log, self.environment, self.cwd = log, environment, cwd
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, cwd=self.cwd,
                start_new_session=True,
            )  # fmt: skip

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """With its children, all at once. Once it has been waited for, its number may be another process's."""
        assert self.process is not None
        if self.is_running():
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)


def postgresql_server(
    folder: Path, port: int, *, password: str = "", environment: Mapping[str, str] | None = None
) -> Server:
    """One that is set up in `folder`, with the superuser motley and a database of that name; not started yet."""
    data = folder / "data"
    data.mkdir()
    if os.geteuid() == 0:
        folder.chmod(0o711)
        shutil.chown(data, UNPRIVILEGED)
    _set_up(data, folder / "password", password)
    wanted = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={data}", *FOR_TESTS)
    words = ["-D", str(data), *(word for setting in wanted for word in ("-c", setting))]
    command = [str(POSTGRESQL / "postgres"), *words]
    return Server(command, folder / "postgresql.log", environment, before=as_unprivileged())


def _set_up(data: Path, password_file: Path, password: str) -> None:
    options = ["-D", str(data), "-U", "motley", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8"]
    password_file.write_text(password)
    password_file.chmod(0o644)
    access = ["-A", "scram-sha-256", "--pwfile", str(password_file)] if password else ["-A", "trust"]
    _run([str(POSTGRESQL / "initdb"), *options, *access])
    _run([str(POSTGRESQL / "postgres"), "--single", "-D", str(data), "postgres"], told="CREATE DATABASE motley;\n")


def as_unprivileged() -> list[str]:
    """What setpriv is told if we are root."""
    if os.geteuid() != 0:
        return []
    group = subprocess.run(["id", "-gn", UNPRIVILEGED], check=True, capture_output=True, text=True).stdout.strip()
    return ["--reuid", UNPRIVILEGED, "--regid", group, "--clear-groups"]


def accepts_connections(port: int) -> bool:
    where = ("-h", "127.0.0.1", "-p", str(port), "-U", "motley", "-d", "motley")
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
            yield f"postgresql://motley@127.0.0.1:{port}/motley"
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
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses, of this worker's part of those that are not for clients.

    Such a client, or another worker, would take the port of a server that does not listen yet, or is being restarted.
    Not by `random`, which pytest-randomly seeds alike before each test.
    """
    part = PORTS // (WORKERS + 1)
    while True:
        first = FIRST_PORT + NUMBER * part + secrets.randbelow(part - count)
        ports = range(first, first + count)
        if not GIVEN.intersection(ports) and all(map(_is_free, ports)):
            GIVEN.update(ports)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("", port))
            return True
        return False


def _wait_for(server: Server, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert server.is_running(), server.log.read_text()
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.05)


def _run(command: Sequence[str], *, told: str = "") -> None:
    whole = ["setpriv", *as_unprivileged(), *command]
    done = subprocess.run(whole, check=False, capture_output=True, text=True, cwd="/", input=told)
    assert done.returncode == 0, done.stderr


def main() -> int:
    """Run the command with MOTLEY_DATABASE set; its exit code is ours."""
    with postgresql() as address:
        return subprocess.run(sys.argv[1:], check=False, env=os.environ | {"MOTLEY_DATABASE": address}).returncode


if __name__ == "__main__":
    sys.exit(main())
