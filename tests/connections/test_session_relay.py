"""The relay of a session ends whatever its client, its command or the database do."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from websockets.frames import Frame, Opcode

from connections_app.errors import NoWebSocket, TooManySessions
from connections_app.sessions import relay
from connections_app.sessions.relay import Relay, SessionSlots
from connections_app.sessions.websocket import accept
from engines.protocol import SessionCommand

HANDSHAKE = {
    "PATH_INFO": "/api/v1/jobs/1/session",
    "HTTP_HOST": "motley",
    "HTTP_UPGRADE": "websocket",
    "HTTP_CONNECTION": "Upgrade",
    "HTTP_SEC_WEBSOCKET_VERSION": "13",
    "HTTP_SEC_WEBSOCKET_KEY": "dGhlIHNhbXBsZSBub25jZQ==",
}
FLOOD = "import sys\nwhile True: sys.stdout.buffer.write(bytes(65536))"
DEAF = "import os, time\nos.write(1, b'up')\ntime.sleep(3600)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_S", 0.02), ("CHECK_EVERY_S", 0.1), ("END_WITHIN_S", 0.2)):
        monkeypatch.setattr(relay, name, seconds)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The service's end of a connection, and the client's."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    for end in (ours, theirs):
        end.close()


def started(ours: socket.socket, script: str, check: Callable[[bool], bool]) -> threading.Thread:
    websocket = accept({**HANDSHAKE, "gunicorn.socket": ours})
    command = SessionCommand([sys.executable, "-ESc", script], Path("/"), dict(os.environ))
    session = Relay(websocket, idle=timedelta(hours=1), check=check)
    thread = threading.Thread(target=session.run, args=(command, b""))
    thread.start()
    return thread


def over(thread: threading.Thread) -> bool:
    thread.join(30)
    return not thread.is_alive()


def test_a_client_that_does_not_read_loses_its_session_with_its_rights(ends: Any) -> None:
    assert over(started(ends[0], FLOOD, lambda _: False))


def test_a_client_that_goes_while_its_input_is_not_read_ends_its_session(ends: Any) -> None:
    ours, theirs = ends
    thread = started(ours, DEAF, lambda _: True)
    seen = b""
    while not seen.endswith(b"up"):  # from now on neither side of the relay has anything to say
        seen += theirs.recv(4096)
    theirs.sendall(Frame(Opcode.BINARY, bytes(1_000_000)).serialize(mask=True))
    theirs.close()
    assert over(thread)


def test_a_session_outlives_a_check_that_fails_but_not_many(ends: Any) -> None:
    asked = []

    def check(in_use: bool) -> bool:
        asked.append(in_use)
        raise ConnectionError

    assert over(started(ends[0], DEAF, check))
    assert len(asked) == relay.MOST_FAILED_CHECKS


@pytest.mark.parametrize(
    "changed",
    [{"HTTP_UPGRADE": ""}, {"HTTP_SEC_WEBSOCKET_KEY": "no key"}, {"HTTP_X": "\x00"}, {"gunicorn.socket": None}],
)
def test_what_is_no_handshake_is_refused(ends: Any, changed: dict[str, Any]) -> None:
    with pytest.raises(NoWebSocket):
        accept({**HANDSHAKE, "gunicorn.socket": ends[0], **changed})


def test_a_user_has_half_of_the_sessions_at_most(settings: Settings) -> None:
    settings.MOTLEY_SESSIONS = 4
    slots, ada, bob = SessionSlots(), User(pk=1), User(pk=2)
    with slots.slot_for(ada), slots.slot_for(ada):
        with pytest.raises(TooManySessions, match="You have 2 open sessions"), slots.slot_for(ada):
            raise AssertionError("a third was opened")
        with slots.slot_for(bob):
            pass
    with slots.slot_for(ada):
        pass
