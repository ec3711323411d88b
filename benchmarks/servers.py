"""Servers that only a benchmark uses: started in folders of their own, and gone afterwards."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POSTGRESQL = Path("/usr/lib/postgresql/15/bin")
UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""

SETTINGS = {
    "shared_buffers": "512MB",
    "work_mem": "16MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    "max_connections": "100",
}
"""What a site with solid-state disks would set first; fsync stays on."""


@contextmanager
def postgresql() -> Iterator[str]:
    """A database of its own; the address is as in MOTLEY_DATABASE."""
    folder, port = Path(tempfile.mkdtemp(prefix="motley-bench-db-", dir="/tmp")), free_port()
    if os.geteuid() == 0:
        shutil.chown(folder, UNPRIVILEGED)
    data = folder / "data"
    _run("initdb", "-D", data, "-U", "motley", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8")
    wanted = {**SETTINGS, "port": str(port), "unix_socket_directories": str(folder)}
    _run(
        "pg_ctl",
        "-D",
        data,
        "-w",
        "-l",
        folder / "log",
        "-o",
        " ".join(f"-c {k}={v}" for k, v in wanted.items()),
        "start",
    )
    try:
        yield f"postgresql://motley@localhost:{port}/postgres"
    finally:
        _run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _run(program: str, *arguments: object) -> None:
    command = [str(POSTGRESQL / program), *map(str, arguments)]
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL, env={"LC_ALL": "C.UTF-8"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
