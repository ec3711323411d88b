"""`motley port` on the machine of the job: the client's forwarding through a real session of the local engine."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from engines.sessions.frames import Kind
from engines.sessions.session import LEADS_BACK
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
        self._one.frames.send(Kind(kind), data, connection)

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


@pytest.mark.local_only
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
