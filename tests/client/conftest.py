"""The service to talk to, and a client that talks to it."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from pytest_django.live_server_helper import LiveServer

from motley_client import Client
from tests.client.scripted_server import Script, handler_for
from tests.live_service import Live
from tests.service_lab import Lab


@pytest.fixture
def service(live_server: LiveServer, lab: Lab) -> Live:
    return Live(str(live_server.url), lab)


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
