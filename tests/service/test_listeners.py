"""Nobody takes the service's place while a part of it is restarted, and only a proxy reaches it by a file."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.deployment import ROOT, kill_all, wait_for
from tests.private_servers import private_folder
from tests.service.running_service import Service

PARTS = ["motley-front", *(pytest.param(part, marks=pytest.mark.thorough) for part in ("motley-web", "motley-long"))]


@pytest.fixture
def service(four_gpus: Service) -> Service:
    return four_gpus


def _taken(address: str, port: int) -> bool:
    """Whether a job could listen there."""
    with socket.socket() as job:
        job.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            job.bind((address, port))
            job.listen()
            return True
    return False


@pytest.mark.parametrize("part", PARTS)
def test_no_job_takes_the_port_while_a_part_is_restarted(service: Service, part: str) -> None:
    before = service.processes(part)
    kill_all(before)

    def is_back() -> bool:
        assert not _taken("127.0.0.1", service.port)
        return bool(service.processes(part)) and not {*before} & {*service.processes(part)} and service.answers()

    wait_for("the service answers again", is_back, pause_s=0.01)


def test_a_request_during_the_restart_of_the_front_waits_and_is_answered(service: Service) -> None:
    for _ in range(3):
        kill_all(service.processes("motley-front"))
        assert httpx.get(f"{service.url}/livez", timeout=60).status_code == 200


def test_the_sockets_between_the_parts_are_closed_to_other_accounts(service: Service) -> None:
    folder = service.var / "run"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"web-0", "web-1", "long"}


@contextmanager
def web(listening: socket.socket, var: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py web` as motley-web.service starts it, with the socket of motley-web.socket."""
    script = f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{listening.fileno()}'
    command = ["bash", "-c", script, "bash", sys.executable, str(ROOT / "manage.py"), "web"]
    settings = {"PATH": os.environ["PATH"], "HOME": str(var), "MOTLEY_VAR": str(var), **environment}
    with subprocess.Popen(command, env=settings, cwd=ROOT, pass_fds=[listening.fileno()]) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_a_proxy_reaches_web_by_a_file_that_outlives_a_restart(runtime: Path, data_folder: Path) -> None:
    with private_folder("motley-web-") as folder, socket.socket(socket.AF_UNIX) as listening:
        shutil.copytree(data_folder, folder / "var")
        path = str(folder / "web.sock")
        listening.bind(path)
        listening.listen(100)
        limits = {"MOTLEY_ADDRESS_HEADER": "X-Real-IP", "MOTLEY_ANONYMOUS_RATE": "1/d"}
        proxy = httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://localhost", timeout=60)
        with proxy:
            with web(listening, folder / "var", **limits):
                codes = [proxy.get("/login/", headers={"X-Real-IP": f"192.0.2.{n}"}).status_code for n in range(4)]
                assert codes == [200] * 4, "each has an address of its own"
                codes = [proxy.get("/login/", headers={"X-Real-IP": "192.0.2.1"}).status_code for _ in range(4)]
                assert 429 in codes
            with socket.socket(socket.AF_UNIX) as waiting:
                waiting.connect(path)  # while web is down
                waiting.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                with web(listening, folder / "var", **limits):
                    waiting.settimeout(60)
                    assert waiting.recv(65536).startswith(b"HTTP/1.1 200 ")
