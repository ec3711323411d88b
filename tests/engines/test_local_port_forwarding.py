"""`motley port` on the machine of the job: the client's forwarding through a real session of the local engine."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.exceptions import ConnectionClosedError

from engines.sessions.frames import Kind
from engines.sessions.session import LEADS_BACK, MOST_CONNECTIONS
from motley_client import sessions as client
from motley_client.errors import ServerError
from tests.engines.engine_lab import GIVE_UP_AFTER_S, Lab
from tests.engines.test_engine_sessions import Session, end, running, session


class Piped:
    """The frames of an engine's session, as the client of `motley port` has them over its WebSocket."""

    def __init__(self, one: Session) -> None:
        self._one = one
        self.opened = 0

    def send(self, kind: Kind, data: bytes = b"", connection: int = 0) -> None:
        self.opened += kind == Kind.OPEN
        try:
            self._one.frames.send(Kind(kind), data, connection)
        except (OSError, ValueError) as error:  # its process has ended, as a WebSocket says in words of its own
            raise ConnectionClosedError(None, None) from error

    def receive(self) -> client.Frame | None:
        frame = self._one.frames.receive()
        return frame and client.Frame(client.Kind(frame.kind), frame.connection, frame.data)

    def why_closed(self) -> str:
        return "its process has ended"


@contextmanager
def forwarded(lab: Lab, attempt: int, theirs: int, server: socket.socket) -> Iterator[tuple[Piped, list[str]]]:
    """`motley port` between this listener and the port of the job, and what it has said."""
    said: list[str] = []
    with session(lab, attempt, {"port": theirs}) as one:
        forwarding = client.Forwarding(cast("Any", piped := Piped(one)), server, on_error=said.append)
        with ThreadPoolExecutor() as pool:
            ended = pool.submit(forwarding.run)
            try:
                yield piped, said
            finally:
                one.process.kill()
            assert isinstance(ended.exception(), ServerError)


@pytest.fixture
def lab(place: Path) -> Iterator[Lab]:
    lab = Lab(place)
    yield lab
    lab.stop_all()


def test_a_port_that_is_the_clients_own_is_refused_and_not_connected_to_itself(lab: Lab) -> None:
    attempt = running(lab)
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = server.getsockname()[1]
        with forwarded(lab, attempt, theirs, server) as (piped, said):
            for _ in range(2):
                with socket.create_connection(server.getsockname(), GIVE_UP_AFTER_S) as caller:
                    assert caller.recv(100) == b""
            assert piped.opened == 2
    assert said == 2 * [LEADS_BACK.format(theirs)]
    end(lab, attempt)


def test_two_that_lead_to_each_other_end(lab: Lab) -> None:
    """Each connection of one is the next of the other, until a session has as many as it may."""
    attempt = running(lab)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (one, other)]
        with (
            forwarded(lab, attempt, ports[1], one) as (first, said),
            forwarded(lab, attempt, ports[0], other) as (second, also_said),
        ):
            with socket.create_connection(one.getsockname(), GIVE_UP_AFTER_S) as caller:
                assert caller.recv(100) == b""
            opened = [piped.opened for piped in (first, second)]
            assert max(opened) <= MOST_CONNECTIONS + 1
    assert any("leads back to this one" in text for text in said + also_said)
    end(lab, attempt)
