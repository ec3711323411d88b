"""The connection of an agent that is kept between messages, and the terms of TLS that all of its connections share."""

import json
import ssl
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import unwrap
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.served_by_tls import served_by_tls
from engines.agent import kept_connection
from engines.agent.codec import encode
from engines.agent.connection import PROBLEM, Connection, Refused, Unheard
from engines.agent.kept_connection import forget_terms, needs_a_proxy
from engines.agent.messages import VERSION, Orders, Sync
from engines.protocol import NodeReport

ORDERS = Orders(timedelta(seconds=60), timedelta(seconds=1), mark="m1")
TOLD = Sync(VERSION, "machine", NodeReport("gpu1"))


class Service:
    """It keeps connections, and counts them; `closes`: after how many answers it closes each without a word."""

    def __init__(self) -> None:
        self.connections, self.answers, self.closes, self.status = 0, 0, 1000, 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                service.connections += 1
                self.left = service.closes

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                service.answers += 1
                self.left -= 1
                body = json.dumps(encode(ORDERS) if service.status == 200 else {"detail": "No."}).encode()
                self.send_response(service.status)
                self.send_header("Content-Type", PROBLEM)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = self.left <= 0

            def log_message(self, *_: object) -> None:
                pass

        self._handler, self.port = Handler, 0
        self.start()
        self._open: list[Connection] = []

    def start(self) -> None:
        """Begin to answer, at the same port as before."""
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port = self.server.server_port
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def connection(self, url: str = "") -> Connection:
        self._open.append(Connection(url or f"http://127.0.0.1:{self.port}", "agent_secret"))
        return self._open[-1]

    def end(self) -> None:
        for one in self._open:
            one.close()
        self.stop()


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    yield one
    one.end()


@pytest.fixture
def _hours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's certificate authorities are read as outside of tests, which read them once; no hour ends."""
    monkeypatch.setattr(ssl, "create_default_context", unwrap(ssl.create_default_context))
    monkeypatch.setattr(kept_connection, "seconds_since_boot", lambda: 0.0)
    forget_terms()
    yield
    forget_terms()


def test_messages_follow_each_other_on_one_connection(service: Service) -> None:
    """Also after a refusal, whose answer is read whole."""
    connection = service.connection()
    assert [connection.sync(TOLD).mark for _ in range(3)] == ["m1"] * 3
    service.status = 409
    with pytest.raises(Refused, match=r"No\."):
        connection.sync(TOLD)
    service.status = 200
    assert connection.sync(TOLD) == ORDERS
    assert (service.connections, service.answers) == (1, 5)


def test_a_connection_that_the_service_has_closed_meanwhile_costs_no_message(service: Service) -> None:
    service.closes = 2
    connection = service.connection()
    assert [connection.sync(TOLD).mark for _ in range(5)] == ["m1"] * 5
    assert (service.connections, service.answers) == (3, 5)


def test_a_service_that_is_gone_is_not_heard_and_heard_again_when_it_is_back(service: Service) -> None:
    service.closes = 1
    connection = service.connection()
    connection.sync(TOLD)
    service.stop()
    with pytest.raises(Unheard):
        connection.sync(TOLD)
    service.start()
    assert connection.sync(TOLD) == ORDERS


@pytest.mark.usefixtures("_hours")
def test_the_certificate_authorities_of_the_machine_are_read_once_for_all_messages(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read them takes longer than all else that an idle agent does in a turn; certificates are checked by them."""
    with served_by_tls(service.port, tmp_path) as by_tls:
        monkeypatch.setenv("SSL_CERT_FILE", str(by_tls.authorities))
        for _ in range(2):
            connection = service.connection(by_tls.url)
            assert connection.sync(TOLD) == connection.sync(TOLD) == ORDERS
            with pytest.raises(Unheard):
                connection.fetch(1, "code", tmp_path / "code")  # another connection, and the service has no GET
    assert kept_connection._terms_of.cache_info().misses == 1
    assert service.connections == 4


@pytest.mark.usefixtures("_hours")
def test_they_are_read_again_when_a_certificate_is_not_believed_and_when_the_hour_is_over(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_by_tls(service.port, tmp_path) as by_tls:
        connection = service.connection(by_tls.url)
        with pytest.raises(Unheard, match="CERTIFICATE_VERIFY_FAILED"):
            connection.sync(TOLD)
        monkeypatch.setenv("SSL_CERT_FILE", str(by_tls.authorities))
        assert connection.sync(TOLD) == ORDERS
        monkeypatch.delenv("SSL_CERT_FILE")  # the authority is withdrawn, and the connection is open
        assert connection.sync(TOLD) == ORDERS
        monkeypatch.setattr(kept_connection, "seconds_since_boot", lambda: 3600.0)
        with pytest.raises(Unheard, match="CERTIFICATE_VERIFY_FAILED"):
            connection.sync(TOLD)


@pytest.mark.parametrize(("exempt", "needed"), [("", True), ("motley.example.org", False)])
def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, exempt: str, *, needed: bool) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    monkeypatch.setenv("no_proxy", exempt)
    assert needs_a_proxy("https://motley.example.org/api/v1/agent") is needed
