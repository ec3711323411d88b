"""WebSocket connections on a WSGI server with threads: the handshake has been read, the socket is taken over."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from django.http import HttpResponse
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

from connections_app.errors import NoWebSocket

LARGEST_MESSAGE_BYTES = 2 * 1024 * 1024
PING_EVERY_S = 20.0


def require_upgrade(environ: Mapping[str, Any]) -> None:
    """Raise `NoWebSocket` for a request that does not ask for a WebSocket."""
    if "websocket" not in environ.get("HTTP_UPGRADE", "").lower():
        raise NoWebSocket("This address speaks WebSocket: use `motley exec` or `motley port`.")


def accept(environ: Mapping[str, Any]) -> Connection:
    """Complete the handshake and take over the connection; raise `NoWebSocket` if it cannot be one."""
    sock = environ.get("gunicorn.socket")
    if sock is None:
        raise NoWebSocket("This web server does not hand over its connections: run gunicorn with threads.")
    protocol = ServerProtocol(max_size=LARGEST_MESSAGE_BYTES)
    protocol.receive_data(_request_bytes(environ))
    events = protocol.events_received()
    response = protocol.accept(cast("Request", events[0])) if events else None
    if response is None or protocol.handshake_exc is not None:
        raise NoWebSocket(f"The handshake is not valid: {protocol.handshake_exc}.")
    protocol.send_response(response)
    for data in protocol.data_to_send():
        sock.sendall(data)
    return Connection(sock, protocol, ping_interval=PING_EVERY_S)


class TakenOver(HttpResponse):
    """In the place of a response, once the connection has been taken over: the server must write nothing more."""

    def __iter__(self) -> Iterator[bytes]:
        raise StopIteration  # gunicorn takes it for a client that has gone


def _request_bytes(environ: Mapping[str, Any]) -> bytes:
    """The request as it came: the protocol reads it by itself."""
    headers = [f"{name[5:].replace('_', '-')}: {value}" for name, value in environ.items() if name.startswith("HTTP_")]
    return "\r\n".join([f"GET {environ['PATH_INFO']} HTTP/1.1", *headers, "", ""]).encode("latin-1")
