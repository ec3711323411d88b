"""A service to talk to, and a `motley` command that talks to it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from contract_service import TOKEN, Service, handler_for
from motley_client.cli import app
from typer.testing import CliRunner, Result


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(service))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    yield service
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Motley:
    """The `motley` command: within this process for most tests, as one of its own where signals or pipes matter."""

    env: dict[str, str]

    def __call__(self, *arguments: str, typed: str | None = None, **env: str) -> Result:
        return CliRunner().invoke(app, arguments, env={**self.env, **env}, input=typed)

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [str(Path(sys.executable).parent / "motley"), *arguments]
        return subprocess.Popen(command, env={"PATH": os.environ["PATH"], **self.env}, **pipes)


@pytest.fixture
def motley(service: Service, tmp_path: Path) -> Motley:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Motley({"MOTLEY_URL": service.url, "MOTLEY_TOKEN": TOKEN, **home})
