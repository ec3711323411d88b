"""Exchange of one request with a server behind the front, over a socket in the file system."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import h11

from front.refusals import Away

BLOCK_BYTES = 64 * 1024
IDLE_S = 10.0
"""A server keeps idle connections longer (`config.web_server`)."""
CONNECT_WITHIN_S, CONNECT_AGAIN_S = 30.0, 0.05
"""A server that is started again listens within this time."""
PEER = b"motley-peer"
"""Header field in which the front tells the servers who its client is; whatever a client writes there is removed."""
OF_ONE_CONNECTION = {
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect"
}  # fmt: skip
Headers = list[tuple[bytes, bytes]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ServerGone(Exception):
    """The server closed the connection in the middle of its answer."""


@dataclass(slots=True)
class Link:
    """A connection to a server; it is reused as long as both sides complete their messages."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    used_at: float = field(default_factory=monotonic)

    def close(self) -> None:
        self.writer.transport.abort()  # nothing is left to send

    def is_good(self) -> bool:
        """Whether a request may be sent: the server has not closed it, and will not soon."""
        return not self.reader.at_eof() and monotonic() - self.used_at < IDLE_S

    def is_reusable(self) -> bool:
        """Whether the exchange is over; if so, ready for the next one."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        self.used_at = monotonic()
        return self.http.trailing_data[0] == b""


class Links:
    """Connections to the servers, the idle ones kept."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Link]] = defaultdict(list)

    @asynccontextmanager
    async def to(self, server: str) -> AsyncIterator[Link]:
        """A connection to the server; raises `Away` if it does not listen."""
        link = self._kept(server) or await _opened(server)
        try:
            yield link
            if link.is_reusable():
                self._idle[server].append(link)
                return
        except BaseException:
            link.close()
            raise
        link.close()

    def close(self) -> None:
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()

    def _kept(self, server: str) -> Link | None:
        while self._idle[server]:
            link = self._idle[server].pop()
            if link.is_good():
                return link
            link.close()
        return None


async def _opened(server: str) -> Link:
    until = monotonic() + CONNECT_WITHIN_S
    while True:
        try:
            return Link(*await asyncio.open_unix_connection(server))
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError) as error:
            if monotonic() > until:
                raise Away from error
            await asyncio.sleep(CONNECT_AGAIN_S)


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Without the fields of one connection, and those that `Connection` names; names in lower case."""
    found = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in found if name == b"connection" for word in value.split(b",")}
    return [(name, value) for name, value in found if name not in OF_ONE_CONNECTION | named]


def forwarded(request: h11.Request, *, peer: str, upgrade: bool, length: int | None, last: bool = False) -> h11.Request:
    """The request as a server gets it; `length` is that of its body, if it is known."""
    headers = [(name, value) for name, value in end_to_end(request.headers) if name != PEER and b"_" not in name]
    headers = [(name, value) for name, value in headers if name != b"content-length"]
    if not any(name == b"host" for name, _ in headers):  # HTTP/1.0
        headers.append((b"host", b"localhost"))
    headers.append((PEER, peer.encode()))
    if upgrade:
        headers += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    elif last:
        headers.append((b"connection", b"close"))
    elif length is None:
        headers.append((b"transfer-encoding", b"chunked"))
    elif length or request.method not in (b"GET", b"HEAD"):
        headers.append((b"content-length", str(length).encode()))
    return h11.Request(method=request.method, target=request.target, headers=headers)


async def events_of(link: Link) -> AsyncIterator[list[h11.Event]]:
    """Events from the server until the end of its answer, in batches as they arrive; raises `ServerGone`."""
    try:
        while True:
            events = list(_arrived(link.http))
            if events:
                yield events
                if isinstance(events[-1], h11.EndOfMessage) or link.http.their_state is h11.SWITCHED_PROTOCOL:
                    return
            link.http.receive_data(await link.reader.read(BLOCK_BYTES))
    except (h11.RemoteProtocolError, ConnectionError) as error:
        raise ServerGone from error


def _arrived(http: h11.Connection) -> Iterator[h11.Event]:
    while isinstance(event := http.next_event(), h11.Event):
        if isinstance(event, h11.ConnectionClosed):
            raise ServerGone
        yield event
        if isinstance(event, h11.EndOfMessage):
            return


async def tunnel(one: Streams, other: Streams) -> None:
    """Copy bytes both ways until either side ends."""
    copies = [asyncio.create_task(_copy(one[0], other[1])), asyncio.create_task(_copy(other[0], one[1]))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BLOCK_BYTES):
        writer.write(data)
        await writer.drain()


async def one_way(reader: asyncio.StreamReader, client: Streams) -> None:
    """Copy to the client until either side ends; what the client sends is dropped."""
    tasks = [asyncio.create_task(_copy(reader, client[1])), asyncio.create_task(_drop(client[0]))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drop(reader: asyncio.StreamReader) -> None:
    while await reader.read(BLOCK_BYTES):
        pass
