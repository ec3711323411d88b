"""A worker of the full stack ends by SIGTERM, whatever has become of its broker."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from tests.deployment import wait_for
from tests.private_servers import Server, free_port

WITHIN_S = 60
"""On a busy machine; a broker that hangs would otherwise be waited for for minutes."""
needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


@contextmanager
def broker(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    port = free_port()
    server = Server(["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)], tmp_path / "redis.log")
    server.start()
    try:
        yield server, f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()


@needs_redis
@pytest.mark.parametrize(
    "fate",
    [pytest.param(signal.SIGSTOP, id="hangs"), pytest.param(signal.SIGKILL, id="is gone", marks=pytest.mark.thorough)],
)
def test_a_worker_ends_though_its_broker(fate: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    command = ["-m", "celery", "-A", "config.celery", "worker", "-Q", "engines", "--concurrency", "1", "-l", "INFO"]
    with broker(tmp_path) as (redis, address), log.open("wb") as said:
        told = {
            "MOTLEY_REDIS": address,
            "MOTLEY_VAR": str(tmp_path),
            "MOTLEY_DATABASE": f"sqlite:///{tmp_path / 'm.sqlite3'}",
        }
        with subprocess.Popen(
            [sys.executable, *command], cwd=settings.BASE_DIR, env=os.environ | told, stdout=said, stderr=said
        ) as worker:
            try:
                wait_for("the worker is ready", lambda: b" ready." in log.read_bytes())
                assert redis.process is not None
                redis.process.send_signal(fate)
                worker.terminate()
                assert worker.wait(WITHIN_S) == 0, log.read_text()[-2000:]
            finally:
                worker.kill()
