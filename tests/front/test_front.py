"""The front between real sockets: a client of bytes on the one side, a server of a few lines on the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from front import connection, places
from front.connection import Connection, Front
from front.connections import Connections
from front.exchange import Links
from front.places import places_at
from front.routes import Kind, kind_of

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
JOB = "/api/v1/jobs/01234567-89ab-cdef-0123-456789abcdef"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE_S = 60


class Server:
    """Answers each request with `OK`, but those below /wait when it is told; keeps what it got."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.go = asyncio.Event()
        self.answer = OK

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 20):
                self.got.append(data)
                if data.startswith(b"GET /wait"):
                    await self.go.wait()
                writer.write(self.answer)
        finally:
            writer.close()


@asynccontextmanager
async def a_front(folder: Path, *, most: int = 100, each: int = 1) -> AsyncIterator[tuple[Server, int]]:
    server, path = Server(), str(folder / "web")
    behind = await asyncio.start_unix_server(server.serve, path)
    front = Front(places_at([path], dict.fromkeys(Kind, each)), Connections(most), Links())
    before = await asyncio.start_server(lambda *streams: Connection(front, *streams).serve(), "127.0.0.1", 0)
    try:
        yield server, before.sockets[0].getsockname()[1]
    finally:
        server.go.set()
        before.close()
        behind.close()
        front.links.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close in a turn of the loop


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def asked(port: int, request: bytes) -> bytes:
    """Everything that is answered until the front closes the connection."""
    async with client(port) as (reader, writer):
        writer.write(request)
        return await reader.read()


def get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *fields, "", ""]).encode()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test()

    asyncio.run(bounded())


def test_a_request_is_forwarded_without_what_a_client_may_not_say(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port):
            answer = await asked(port, get("/a?b=c", "Motley-Peer: unix", "Motley_Peer: unix", "X-Own: 1"))
        (got,) = server.got
        assert answer.endswith(b"ok")
        assert got.startswith(b"GET /a?b=c HTTP/1.1\r\n")
        assert [line for line in got.lower().split(b"\r\n") if b"peer" in line] == [b"motley-peer: 127.0.0.1"]
        assert b"x-own: 1" in got
        assert b"connection" not in got

    run(test)


def test_two_requests_on_one_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port):
            first = get("/1").replace(b"Connection: close\r\n", b"")
            assert (await asked(port, first + get("/2"))).count(b"200 OK") == 2
        assert len(server.got) == 2

    run(test)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"200"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n", b"400"),
    ],
)
def test_a_request_that_could_be_read_in_two_ways_has_one_meaning_or_none(
    tmp_path: Path, request_: bytes, code: bytes
) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (reader, writer):
            writer.write(request_)
            assert (await reader.readline()).split()[1] == code
        assert all(b"\r\n\r\n" in got and got.count(b"content-length") <= 1 for got in server.got)

    run(test)


def test_a_slow_body_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (reader, writer):
            writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
            assert (await asked(port, get("/"))).endswith(b"ok")
            assert (await reader.readline()).split()[1] == b"408"
        assert len(server.got) == 1

    monkeypatch.setattr(connection, "BODY_WITHIN_S", 1.0)
    run(test)


def test_probes_and_agents_have_places_of_their_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (_, writer):
            writer.write(get("/wait"))
            while not server.got:
                await asyncio.sleep(0.01)
            assert (await asked(port, get("/livez"))).endswith(b"ok")
            assert (await asked(port, get("/api/v1/agent/sync"))).endswith(b"ok")

    run(test)


def test_who_finds_no_place_is_told_when_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (reader, writer):
            writer.write(get("/wait"))
            while not server.got:
                await asyncio.sleep(0.01)
            refused = await asked(port, get("/api/v1/jobs"))
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5" in refused.lower()
            assert b'"code": "busy"' in refused
            server.go.set()
            assert (await reader.read()).endswith(b"ok")
            assert (await asked(port, get("/"))).endswith(b"ok")

    monkeypatch.setattr(places, "LONGEST_WAIT_S", 0.5)
    run(test)


def test_the_oldest_client_without_a_whole_request_makes_room(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path, most=2) as (_, port), client(port) as old, client(port) as young:
            for _, writer in (old, young):
                writer.write(b"GET / HTTP/1.1\r\n")
                await asyncio.sleep(0.1)
            assert (await asked(port, get("/"))).endswith(b"ok")
            assert await _has_ended(old[0])
            young[1].write(b"Host: x\r\n\r\n")
            assert (await young[0].readline()).split()[1] == b"200"

    run(test)


async def _has_ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


def test_a_client_that_does_not_read_holds_no_place(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (_, writer):
            server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + bytes(900_000)
            writer.write(get("/large"))
            while not server.got:
                await asyncio.sleep(0.01)
            server.answer = OK
            assert (await asked(port, get("/"))).endswith(b"ok")

    run(test)


def test_a_large_body_is_forwarded_while_it_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_front(tmp_path) as (server, port), client(port) as (_, writer):
            size = connection.WHOLE_BYTES + 1
            writer.write(f"PUT /large HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
            while not server.got:
                await asyncio.sleep(0.01)
            assert f"content-length: {size}".encode() in server.got[0]

    run(test)


@pytest.mark.parametrize(
    ("target", "headers", "kind"),
    [
        ("/", {}, Kind.SHORT),
        ("/readyz", {}, Kind.KEPT),
        ("/api/v1/agent/sync", {}, Kind.KEPT),
        (f"{JOB}/session", {"upgrade": "websocket"}, Kind.LONG),
        (f"{JOB}/session", {}, Kind.SHORT),
        ("/", {"upgrade": "websocket"}, Kind.SHORT),
        (f"{JOB}/logs?rank=1", {"accept": "text/event-stream"}, Kind.LONG),
        (f"{JOB}/logs?offset=1&wait=5", {}, Kind.SHORT),
        (f"{JOB}/merged-log?wait=5", {}, Kind.SHORT),
        (f"{JOB}/merged-log", {"accept": "text/event-stream"}, Kind.SHORT),
    ],
)
def test_a_request_has_the_kind_of_what_it_asks_for(target: str, headers: dict[str, str], kind: Kind) -> None:
    assert kind_of(target, headers) is kind
