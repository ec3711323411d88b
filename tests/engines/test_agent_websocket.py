"""The agent's WebSocket against a library's server: messages of every length come whole, both ways."""

import os
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from engines.agent import websocket as module
from engines.agent.websocket import NoWebSocket, WebSocket, masked

LENGTHS = (0, 1, 125, 126, 65_535, 65_536, 300_000)


def echo(connection: ServerConnection) -> None:
    """Send each message back, in parts where it is long; a ping comes between."""
    for message in connection:
        assert isinstance(message, bytes)
        connection.ping()
        parts = [message[:1000], message[1000:]] if len(message) > 1000 else message
        connection.send(parts)


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(echo, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def opened(server: Server) -> WebSocket:
    port = server.socket.getsockname()[1]
    return WebSocket.open(HTTPConnection("127.0.0.1", port, timeout=30), "/", "agent_secret")


def test_messages_come_whole_both_ways(server: Server) -> None:
    websocket = opened(server)
    for length in LENGTHS:
        message = os.urandom(length)
        websocket.send(message)
        assert websocket.receive() == message
    websocket.close()


def test_the_end_of_the_other_side_is_the_end(server: Server) -> None:
    websocket = opened(server)
    ending = threading.Thread(target=server.shutdown)  # which waits ten seconds for an answer
    ending.start()
    assert websocket.receive() is None
    websocket.close()
    ending.join()


def test_a_service_that_says_nothing_any_more_is_the_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its machine has lost its power: no end of the connection ever comes."""
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    websocket = opened(server)
    assert websocket.receive() is None
    websocket.close()


def test_an_answer_that_opens_none_is_an_error(server: Server) -> None:
    port = server.socket.getsockname()[1]
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putheader = lambda *_: None  # type: ignore[method-assign]  # a request without the fields of one
    with pytest.raises(NoWebSocket, match="the service answered 4"):
        WebSocket.open(connection, "/", "agent_secret")


def test_a_mask_is_combined_byte_by_byte() -> None:
    mask, data = b"\x01\x02\x03\x04", os.urandom(11)
    assert masked(data, mask) == bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    assert masked(masked(data, mask), mask) == data
