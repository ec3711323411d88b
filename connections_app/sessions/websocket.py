"""Sessions between the view that permits them and the server of long requests that relays them."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from django.http import HttpResponse

from connections_app.errors import NoWebSocket
from connections_app.long_requests import is_long
from engines.protocol import SessionCommand

LARGEST_MESSAGE_BYTES = 2 * 1024 * 1024
PING_EVERY_S = 20.0
NOT_ACCEPTED = 1008


class NotAsked(Exception):
    """The first message is not a valid request for a session; the error's text says why."""


class Session(Protocol):
    """Session as permitted by the view."""

    command: SessionCommand
    to_the_end: bool
    """Whether the process is given all that was sent, also when the sender has gone (`Relay`)."""

    def begin(self, message: str | bytes) -> bytes:
        """Check and note the first message; the first bytes for the process. Raises `NotAsked`."""

    def check(self, in_use: bool) -> bool:
        """Record the use of the session; returns whether it may continue."""

    def runs(self) -> bool:
        """Whether that in which the session is has not ended: asked often, in one query."""


class SessionResponse(HttpResponse):
    """In place of a response: the server of long requests accepts the WebSocket, and calls `give_back` at the end."""

    status_code = 101

    def __init__(self, session: Session, give_back: Callable[[], None]) -> None:
        super().__init__()
        self.session, self.give_back = session, give_back


def require_websocket(environ: Mapping[str, Any]) -> None:
    """Raise `NoWebSocket` for a request that does not ask for a WebSocket, or that no server carries on."""
    if "websocket" not in environ.get("HTTP_UPGRADE", "").lower():
        raise NoWebSocket("This address speaks WebSocket: use `motley exec` or `motley port`.")
    if not is_long(environ):
        raise NoWebSocket("This web server has no sessions: run `manage.py serve` or `manage.py web`.")
