"""Clients that send slowly, stay connected, or say whose address they have: the service answers others as before."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deployment import wait_for
from tests.service.running_service import Service, a_service

ATTACKERS = 120
ANSWER_S = 10
"""Held threads would cost half a minute at least."""
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
BODY = (
    b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 100\r\n\r\nusername="
)
LARGE_BODY = (
    b"PUT /api/v1/teams/vision/code/abc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/gzip\r\n"
    b"Content-Length: 100000000\r\n\r\nabc"
)
FINISHED = b"GET /livez HTTP/1.0\r\n\r\n"


@pytest.fixture
def service(four_gpus: Service) -> Service:
    return four_gpus


@pytest.fixture
def behind_a_proxy(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """One of its own: who logs in too often is locked out."""
    with a_service(prepared=data_folder, MOTLEY_ADDRESS_HEADER="X-Real-IP") as running:
        yield running


@contextmanager
def attackers(service: Service, request: bytes) -> Iterator[list[socket.socket]]:
    """Connections on which this has been sent, and that stay open."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(ATTACKERS):
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60)))
            sockets[-1].sendall(request)
        yield sockets


def workers(service: Service) -> list[int]:
    return service.processes("motley-web")


def answered(service: Service, path: str) -> int:
    return httpx.get(f"{service.url}{path}", timeout=ANSWER_S).status_code


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(HEAD, id="head"),
        pytest.param(BODY, id="body"),
        pytest.param(LARGE_BODY, id="large", marks=pytest.mark.thorough),
        pytest.param(FINISHED, id="finished"),
    ],
)
def test_others_are_answered_meanwhile(service: Service, request_: bytes) -> None:
    before = workers(service)
    with attackers(service, request_):
        for path in ("/livez", "/readyz", "/login/") * 2:
            assert answered(service, path) == 200
        assert httpx.post(f"{service.url}/api/v1/agent/sync", timeout=ANSWER_S).status_code == 401
    assert set(before) <= set(workers(service))  # none was replaced; one that had not started yet may have come


@pytest.mark.parametrize("request_", [HEAD, BODY], ids=["head", "body"])
def test_a_request_that_does_not_come_is_given_up(service: Service, request_: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=60)) as sock:
        sock.sendall(request_)
        said = b"".join(iter(lambda: sock.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 408 ")


def test_a_client_past_the_proxy_cannot_choose_its_address(behind_a_proxy: Service) -> None:
    with httpx.Client(base_url=behind_a_proxy.url, timeout=60) as browser:
        hidden = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/login/").text)[0]
        fields = {"username": "admin", "password": "wrong", "csrfmiddlewaretoken": hidden}
        headers = [{"X-Real-IP": f"192.0.2.{n}", "Motley-Peer": "unix"} for n in range(7)]
        codes = [browser.post("/login/", data=fields, headers=one).status_code for one in headers]
    assert codes[-1] == 429


def test_no_connection_is_left(service: Service) -> None:
    with attackers(service, HEAD):
        pass
    wait_for("the front closes what clients have closed", lambda: _open_files(service) < ATTACKERS)


def _open_files(service: Service) -> int:
    (front,) = service.processes("motley-front")
    return len(list(Path(f"/proc/{front}/fd").iterdir()))
