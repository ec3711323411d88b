"""The relay of a session ends whatever its client, its command or the database do."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from connections_app.errors import NoWebSocket, TooManyLongRequests
from connections_app.long_requests import LONG, LongRequests
from connections_app.sessions import relay
from connections_app.sessions.relay import Relay
from connections_app.sessions.websocket import require_websocket
from engines.protocol import SessionCommand

FLOOD = "import sys\nwhile True: sys.stdout.buffer.write(bytes(65536))"
DEAF = "import os, time\nos.write(1, b'up')\ntime.sleep(3600)"
ECHO = "import os\nwhile data := os.read(0, 100): os.write(1, data)"
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("POLL_S", 0.02), ("CHECK_EVERY_S", 0.1), ("ENDS_WITHIN_S", 0.1), ("END_WITHIN_S", 0.2)):
        monkeypatch.setattr(relay, name, seconds)


class Client:
    """The client's side: what it sends and has received; one that is deaf reads nothing."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.received = b""
        self.closed: tuple[int, str] | None = None
        self._deaf = deaf
        self.is_sent_to = False

    async def receive(self) -> bytes | None:
        return await self.sent.get()

    async def send(self, data: bytes) -> None:
        self.is_sent_to = True
        if self._deaf:
            await asyncio.Event().wait()
        self.received += data

    async def close(self, code: int, words: str) -> None:
        self.closed = (code, words)
        if self._deaf:
            await asyncio.Event().wait()


async def permitted(in_use: bool) -> bool:
    return True


async def forbidden(in_use: bool) -> bool:
    return False


def session(
    script: str,
    act: Callable[[Client], Awaitable[None]] | None = None,
    *,
    check: Callable[[bool], Awaitable[bool]] = permitted,
    deaf: bool = False,
    runs: Callable[[], Awaitable[bool]] | None = None,
    to_the_end: bool = False,
) -> Client:
    """A whole session; the client acts beside it."""

    async def both() -> Client:
        client = Client(deaf=deaf)
        command = SessionCommand([sys.executable, "-ESc", script], Path("/"), dict(os.environ))
        whole = Relay(client, idle=timedelta(hours=1), check=check, runs=runs, to_the_end=to_the_end).run(
            command, b"first"
        )
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(whole, *([act(client)] if act else []))
        await asyncio.sleep(0.05)  # pipes close in a turn of the loop
        return client

    return asyncio.run(both())


async def heard(client: Client, data: bytes) -> None:
    while data not in client.received:
        await asyncio.sleep(0.01)


def test_bytes_go_both_ways_until_the_client_goes() -> None:
    async def act(client: Client) -> None:
        await client.sent.put(b"second")
        await heard(client, b"firstsecond")
        await client.sent.put(None)

    assert session(ECHO, act).closed == (relay.NORMAL, "the client has gone")


def test_the_end_of_the_command_ends_the_session() -> None:
    assert session("print('done')").closed == (relay.NORMAL, "the session has ended")


def test_a_client_that_does_not_read_loses_its_session_with_its_rights() -> None:
    assert session(FLOOD, check=forbidden, deaf=True).closed == (relay.POLICY, "no longer permitted")


def test_a_client_that_goes_while_its_input_is_not_read_ends_its_session() -> None:
    async def act(client: Client) -> None:
        await heard(client, b"up")
        await client.sent.put(bytes(1_000_000))
        await client.sent.put(None)

    assert session(DEAF, act).closed == (relay.NORMAL, "the client has gone")


def test_a_command_that_reads_nothing_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(client: Client) -> None:
        for _ in range(20):
            await client.sent.put(bytes(1_000_000))

    monkeypatch.setattr(relay, "FULL_FOR_S", 0.1)
    assert session(DEAF, act).closed == (relay.NORMAL, "what was sent is not read")


SLOW = (
    "import os, time\ntotal = 0\n"
    "while data := os.read(0, 65536):\n    total += len(data); time.sleep(0.001)\n"
    "os.write(1, b'read %d' % total)"
)


def test_what_an_agent_has_sent_before_it_goes_is_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has ended, and its reader is slow: more is under way than the relay keeps, and the agent has gone."""

    async def act(agent: Client) -> None:
        for _ in range(20):
            await agent.sent.put(bytes(100_000))
        await agent.sent.put(None)

    monkeypatch.setattr(relay, "MOST_UNREAD_BYTES", 500_000)
    monkeypatch.setattr(relay, "FULL_FOR_S", 0.0)
    ended = session(SLOW, act, to_the_end=True)
    assert ended.received == b"read %d" % (len(b"first") + 20 * 100_000)
    assert session(SLOW, act).received == b""


def test_a_session_outlives_a_check_that_fails_but_not_many() -> None:
    asked = []

    async def check(in_use: bool) -> bool:
        asked.append(in_use)
        raise ConnectionError

    assert session(DEAF, check=check).closed == (relay.POLICY, "no longer permitted")
    assert len(asked) == relay.MOST_FAILED_CHECKS


async def ended() -> bool:
    return False


def test_a_session_ends_soon_after_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CHECK_EVERY_S", 3600.0)
    assert session(DEAF, runs=ended).closed == (relay.NORMAL, "the attempt has ended")


def test_the_last_output_of_an_attempt_that_has_ended_waits_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next check ends a session whose reader takes nothing."""
    monkeypatch.setattr(relay, "CHECK_EVERY_S", 0.5)
    clients: list[Client] = []

    async def act(client: Client) -> None:
        clients.append(client)

    async def runs() -> bool:
        return not (clients and clients[0].is_sent_to)

    assert session(FLOOD, act, runs=runs, check=forbidden, deaf=True).closed == (relay.POLICY, "no longer permitted")


def test_the_last_place_is_kept_for_those_who_have_none() -> None:
    files = LongRequests("requests for files", most=4, most_of_a_user=2, kept_for_others=True)
    files.take(1), files.take(1), files.take(2)
    with pytest.raises(TooManyLongRequests, match="The last place for requests for files is kept for others while you"):
        files.take(2)
    give_back = files.take(3)
    with pytest.raises(TooManyLongRequests, match="The service has 4 open requests for files"):
        files.take(4)
    give_back()
    files.take(4)


@pytest.mark.parametrize("environ", [{LONG: True}, {"HTTP_UPGRADE": "websocket"}])
def test_what_cannot_become_a_websocket_is_refused(environ: dict[str, object]) -> None:
    with pytest.raises(NoWebSocket):
        require_websocket({"HTTP_UPGRADE": "", **environ})


def test_a_user_and_all_have_so_many_sessions(settings: Settings) -> None:
    settings.MOTLEY_SESSIONS, settings.MOTLEY_USER_SESSIONS = 3, 2
    sessions = LongRequests("sessions", most="MOTLEY_SESSIONS", most_of_a_user="MOTLEY_USER_SESSIONS")
    one, _ = sessions.take(1), sessions.take(1)
    with pytest.raises(TooManyLongRequests, match="You have 2 open sessions, the limit"):
        sessions.take(1)
    sessions.take(2)
    with pytest.raises(TooManyLongRequests, match="The service has 3 open sessions"):
        sessions.take(3)
    one()
    one()
    sessions.take(3)
    with pytest.raises(TooManyLongRequests):
        sessions.take(3)
