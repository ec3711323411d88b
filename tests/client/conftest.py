"""The service to talk to, and a `motley` command that talks to it."""

import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from motley_client import Client
from tests.client.scripted_server import TOKEN, Script, handler_for
from tests.live_service import Live
from tests.motley_command import Motley
from tests.service_lab import Lab


@pytest.fixture
def service(live_server: LiveServer, lab: Lab) -> Live:
    return Live(str(live_server.url), lab)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is configured."""
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MOTLEY_URL": "",
        "MOTLEY_TOKEN": "",
        "TERM": "dumb",
    }


@pytest.fixture
def motley(service: Live, home: dict[str, str]) -> Motley:
    """The command as ada has it, by a token that may submit."""
    return Motley({**home, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token})


@pytest.fixture
def staff(service: Live, home: dict[str, str]) -> Motley:
    """The command of an administrator."""
    return Motley({**home, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.staff_token})


@pytest.fixture
def client(service: Live) -> Iterator[Client]:
    with Client(service.url, service.token, poll_s=0.01) as client:
        yield client


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that answers what the test tells it to."""
    script = Script()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(script))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    yield script
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def scripted(script: Script, home: dict[str, str]) -> Motley:
    """The command, talking to that server."""
    return Motley({**home, "MOTLEY_URL": script.url, "MOTLEY_TOKEN": TOKEN})


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of this machine."""

    def chosen(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield chosen
    monkeypatch.undo()
    time.tzset()
