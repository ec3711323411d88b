"""One connection of a client: sequential requests, each read whole before it takes a place.

Nothing that a client does slowly holds a place: the head and a body of up to `WHOLE_BYTES` are read before, the end of
the answer is buffered after. Larger bodies are forwarded while they come, on places of their own.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import h11

from front.connections import Connections
from front.exchange import (
    BLOCK_BYTES,
    Link,
    Links,
    ServerGone,
    end_to_end,
    events_of,
    forwarded,
    one_way,
    tunnel,
)
from front.places import Places
from front.refusals import Refused, TooLong, TooSlow, answer
from front.routes import Kind, kind_of, wants_websocket

log = logging.getLogger(__name__)

LONGEST_HEAD_BYTES = 64 * 1024
HEAD_WITHIN_S = 10.0
IDLE_S = 60.0
"""Between two requests."""
WHOLE_BYTES = 4 << 20
BODY_WITHIN_S, BULK_WITHIN_S = 20.0, 60.0
LEAST_BYTES_PER_S = 4096
"""Mean rate of a body after that time."""
READ_WITHIN_S = 30.0
"""The client reads three quarters of `UNREAD_BYTES` of its answer in this time."""
UNREAD_BYTES = 1 << 20
LINGER_S, LINGER_BYTES = 5.0, 16 << 20


@dataclass(frozen=True, slots=True)
class Front:
    """What all connections share."""

    places: dict[Kind, Places]
    connections: Connections
    links: Links


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes of a body read so far, and whether it is complete."""

    data: bytes
    is_whole: bool


class Connection:
    def __init__(self, front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._front, self._reader, self._writer = front, reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD_BYTES)
        self._peer = _peer_of(writer)
        self._target = ""
        self._unsent = b""
        self.buffered = 0

    def evict(self) -> None:
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Answer requests until the client goes, or one is refused."""
        self._writer.transport.set_write_buffer_limits(high=UNREAD_BYTES)
        try:
            self._front.connections.add(self)
            await self._serve_all()
        except Refused as refused:
            await self._refuse(refused)
        except ServerGone:
            log.warning("a server ended in the middle of a request: %s", self._target)
            self._writer.transport.abort()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
        finally:
            self._front.connections.remove(self)
            self._writer.close()

    async def _serve_all(self) -> None:
        patience_s = HEAD_WITHIN_S
        while (request := await self._head(patience_s)) is not None:
            if not await self._serve_one(request):
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                await self._linger()
                return
            self._http.start_next_cycle()
            patience_s = IDLE_S

    async def _head(self, patience_s: float) -> h11.Request | None:
        self._front.connections.begin(self)
        self._target = ""
        if not self._http.trailing_data[0]:
            try:
                async with asyncio.timeout(patience_s):
                    first = await self._reader.read(BLOCK_BYTES)
            except TimeoutError:
                return None
            if not first:
                return None
            self._http.receive_data(first)
        event = await self._next(monotonic() + HEAD_WITHIN_S)
        return event if isinstance(event, h11.Request) else None

    async def _next(self, until: float) -> object:
        """The next event; raises `TooSlow`, `Refused`, and `ConnectionError` if the client has disconnected."""
        try:
            async with asyncio.timeout_at(until):
                while (event := self._http.next_event()) is h11.NEED_DATA:
                    if not (data := await self._reader.read(BLOCK_BYTES)):
                        raise ConnectionResetError
                    self._http.receive_data(data)
                return event
        except TimeoutError as error:
            raise TooSlow from error
        except h11.RemoteProtocolError as error:
            raise (TooLong if error.error_status_hint == 431 else Refused) from error

    async def _serve_one(self, request: h11.Request) -> bool:
        """Serve one request; returns whether the connection still uses HTTP."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        self._target = request.target.decode("latin-1")
        upgrade = wants_websocket(self._target.partition("?")[0], headers)
        body = await self._body(headers, upgrade=upgrade)
        kind = self._kind(request, headers) if body.is_whole else Kind.BULK
        self._front.connections.complete(self)
        async with self._front.places[kind].place() as server, self._front.links.to(server) as link:
            if kind is Kind.LONG:
                await self._tunnel(forwarded(request, peer=self._peer, upgrade=upgrade, length=0, last=True), link)
            else:
                await self._exchange(request, headers, body, link, upgrade=upgrade)
        return kind is not Kind.LONG

    async def _body(self, headers: dict[str, str], *, upgrade: bool) -> Body:
        """The body, as far as it is read before the request has a place."""
        if int(headers.get("content-length", "0")) > WHOLE_BYTES:
            return Body(b"", is_whole=False)
        if upgrade:
            return Body(b"", is_whole=True)
        self._continue()
        data, began = bytearray(), monotonic()
        while True:
            event = await self._next(began + BODY_WITHIN_S + len(data) / LEAST_BYTES_PER_S)
            if not isinstance(event, h11.Data):
                return Body(bytes(data), is_whole=True)
            data += event.data
            self._front.connections.buffer(self, len(event.data))
            if len(data) > WHOLE_BYTES:
                return Body(bytes(data), is_whole=False)

    def _continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _kind(self, request: h11.Request, headers: dict[str, str]) -> Kind:
        """Kind of a whole request; over HTTP/1.0, or without a server for them, none is long."""
        kind = kind_of(self._target, headers)
        is_short = kind is Kind.LONG and (request.http_version != b"1.1" or Kind.LONG not in self._front.places)
        return Kind.SHORT if is_short else kind

    async def _tunnel(self, head: h11.Request, link: Link) -> None:
        """Pass the answer on as it comes; what the client sends, once the server has switched to a WebSocket."""
        link.writer.write(link.http.send(head) or b"")
        first = await link.reader.read(BLOCK_BYTES)
        self._writer.write(first)
        if first.startswith(b"HTTP/1.1 101 "):
            link.writer.write(self._http.trailing_data[0])
            await tunnel((self._reader, self._writer), (link.reader, link.writer))
        else:
            await one_way(link.reader, (self._reader, self._writer))
        await self._writer.drain()

    async def _exchange(
        self, request: h11.Request, headers: dict[str, str], body: Body, link: Link, *, upgrade: bool
    ) -> None:
        length = len(body.data) if body.is_whole else _length_of(headers)
        head = forwarded(request, peer=self._peer, upgrade=upgrade, length=length)
        sending = asyncio.create_task(self._send(head, body, link))
        try:
            await self._answer(link)
        except ServerGone:
            if sending.done() and (error := sending.exception()) is not None:  # it was we who cut it short
                raise error from None
            raise
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, head: h11.Request, body: Body, link: Link) -> None:
        """Forward the request; of a body that is not whole, the rest as it comes."""
        data = link.http.send(head) or b""
        if body.data:
            data += link.http.send(h11.Data(data=body.data)) or b""
        self._front.connections.free(self)
        if not body.is_whole:
            link.writer.write(data)
            await self._send_rest(link, len(body.data))
            data = b""
        link.writer.write(data + (link.http.send(h11.EndOfMessage()) or b""))
        with suppress(ConnectionError):  # it has answered without reading all of it
            await link.writer.drain()

    async def _send_rest(self, link: Link, size: int) -> None:
        """Forward the rest of the body; time in which the server does not read is not counted against the client."""
        self._continue()
        began = monotonic()
        try:
            while isinstance(event := await self._next(began + BULK_WITHIN_S + size / LEAST_BYTES_PER_S), h11.Data):
                size += len(event.data)
                full_at = monotonic()
                link.writer.write(link.http.send(h11.Data(data=bytes(event.data))) or b"")
                await link.writer.drain()
                began += monotonic() - full_at
        except (Refused, OSError):
            link.close()  # the server sees that the body is cut short
            raise

    async def _answer(self, link: Link) -> None:
        async for events in events_of(link):
            for event in events:
                match event:
                    case h11.Response():
                        self._unsent += self._http.send(_answered(event)) or b""
                    case h11.Data():
                        self._unsent += self._http.send(h11.Data(data=bytes(event.data))) or b""
                    case h11.EndOfMessage():
                        self._unsent += self._http.send(h11.EndOfMessage()) or b""
            await self._flush()

    def _write(self, data: bytes | None) -> None:
        self._writer.write(data or b"")

    async def _flush(self) -> None:
        """Send what is ready; a client that reads too slowly loses its connection."""
        data, self._unsent = self._unsent, b""
        self._writer.write(data)
        async with asyncio.timeout(READ_WITHIN_S):
            await self._writer.drain()

    async def _refuse(self, refused: Refused) -> None:
        headers, body, request_id = answer(refused, self._target)
        path = self._target.partition("?")[0]
        log.warning("refused a request of %s: %s %s (%s)", self._peer, refused.code, path, request_id)
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._writer.transport.abort()
            return
        with suppress(OSError, TimeoutError, h11.LocalProtocolError):
            self._write(self._http.send(h11.Response(status_code=refused.status, headers=headers)))
            self._write(self._http.send(h11.Data(data=body)))
            self._write(self._http.send(h11.EndOfMessage()))
            await self._linger()

    async def _linger(self) -> None:
        """Keep reading for a while, so that a client that is still sending gets the answer instead of a reset."""
        with suppress(OSError, TimeoutError):
            self._front.connections.begin(self)
            async with asyncio.timeout(LINGER_S):
                await self._writer.drain()
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await self._reader.read(BLOCK_BYTES)):
                    left -= len(data)


def _peer_of(writer: asyncio.StreamWriter) -> str:
    """Address of the client, or "unix"."""
    name = writer.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else "unix"


def _length_of(headers: dict[str, str]) -> int | None:
    return int(headers["content-length"]) if "content-length" in headers else None


def _answered(response: h11.Response) -> h11.Response:
    """The answer as the client gets it."""
    headers = [(name, value) for name, value in end_to_end(response.headers.raw_items())]
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)
