"""A service to talk to, and a `motley` command that talks to it."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from contract_service import TOKEN, Service, handler_for
from motley_command import Motley


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


@pytest.fixture
def motley(service: Service, tmp_path: Path) -> Motley:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Motley({"MOTLEY_URL": service.url, "MOTLEY_TOKEN": TOKEN, **home})
