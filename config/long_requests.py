"""ASGI application of the server of long requests: streams of logs, and sessions by WebSocket.

A request passes Django's middleware and its view in one of a few threads, as on any other server. The view gives back
what is to go on, and the event loop does that without a thread.
"""

import asyncio
import io
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import close_old_connections
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

import config.wsgi  # noqa: F401 - sets Django up, and has PostgreSQL bound statements
from connections_app.logs.feed import Feeds, InThread
from connections_app.logs.following import FollowingResponse, events_of
from connections_app.long_requests import LONG
from connections_app.sessions.relay import Relay
from connections_app.sessions.websocket import NOT_ACCEPTED, NotAsked, SessionResponse

log = logging.getLogger(__name__)

THREADS = 8
REQUEST_WITHIN_S = 10.0
Scope = dict[str, Any]
Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]

_handler = WSGIHandler()
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="long")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    context = copy_context()
    in_thread = partial(_in_thread, context)
    loop = asyncio.get_running_loop()
    response = await loop.run_in_executor(_threads, context.run, _connected, _respond, environ_of(scope))
    try:
        if scope["type"] == "websocket":
            await _websocket(response, receive, send, in_thread)
        else:
            await _http(response, receive, send, in_thread)
    finally:
        await in_thread(response.close)


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _in_thread(context: Context, work: Callable[..., Any], *args: Any) -> Any:
    """Run in one of the threads, in a copy of the context, which has the id of the request."""
    return await asyncio.get_running_loop().run_in_executor(_threads, context.copy().run, _connected, work, *args)


def _connected(work: Callable[..., Any], *args: Any) -> Any:
    close_old_connections()
    try:
        return work(*args)
    finally:
        close_old_connections()


def _respond(environ: dict[str, Any]) -> HttpResponseBase:
    """As `WSGIHandler.__call__`, without the end of the response."""
    set_script_prefix("/")
    signals.request_started.send(sender=WSGIHandler, environ=environ)
    return _handler.get_response(WSGIRequest(environ))


def environ_of(scope: Scope) -> dict[str, Any]:
    """The WSGI environment of a request of the front."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope.get("method", "GET"),
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        LONG: True,
    }
    for name, value in scope["headers"]:
        if b"_" not in name:
            key = f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}"
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ


async def _http(response: HttpResponseBase, receive: Receive, send: Send, in_thread: InThread) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": _headers_of(response)})
    if isinstance(response, FollowingResponse):
        await _follow(response, receive, send, in_thread)
    else:
        content: Iterable[bytes] = response
        await send({"type": "http.response.body", "body": b"".join(content)})


def _headers_of(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    follows = isinstance(response, FollowingResponse)
    found = [*response.items(), *(("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values())]
    return [
        (name.lower().encode("latin-1"), str(value).encode("latin-1"))
        for name, value in found
        if not (follows and name.lower() == "content-length")
    ]


async def _follow(response: FollowingResponse, receive: Receive, send: Send, in_thread: InThread) -> None:
    """Send events until their end, or until the client has gone."""
    sending = asyncio.ensure_future(_send_events(response, send, in_thread))
    leaving = asyncio.ensure_future(_client_gone(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        response.give_back()


async def _send_events(response: FollowingResponse, send: Send, in_thread: InThread) -> None:
    try:
        async for data in events_of(response.followed, _feeds(), in_thread):
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except OSError:
        return  # the client has gone
    except Exception:
        log.exception("a stream of a log failed")
        raise


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@cache
def _feeds() -> Feeds:
    """The feeds of this process, which has one event loop."""
    return Feeds(partial(_in_thread, Context()))


class ClientSocket:
    """The client's side of a session."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send, self._is_open = receive, send, True

    async def receive_message(self) -> str | bytes | None:
        event = await self._receive()
        if event["type"] != "websocket.receive":
            self._is_open = False
            return None
        message: str | bytes = event["text"] if event.get("bytes") is None else event["bytes"]
        return message

    async def receive(self) -> bytes | None:
        message = await self.receive_message()
        return message.encode() if isinstance(message, str) else message

    async def send(self, data: bytes) -> None:
        await self._send({"type": "websocket.send", "bytes": data})

    async def close(self, code: int, words: str) -> None:
        if self._is_open:
            with suppress(Exception):  # it may go at the same moment
                await self._send({"type": "websocket.close", "code": code, "reason": words})


async def _websocket(response: HttpResponseBase, receive: Receive, send: Send, in_thread: InThread) -> None:
    await receive()  # websocket.connect
    if not isinstance(response, SessionResponse):
        start = {"type": "websocket.http.response.start", "status": response.status_code}
        await send({**start, "headers": _headers_of(response)})
        content: Iterable[bytes] = response
        await send({"type": "websocket.http.response.body", "body": b"".join(content)})
        return
    try:
        await send({"type": "websocket.accept"})
        await _relay(response, ClientSocket(receive, send), in_thread)
    except Exception:  # the connection is no longer one for an error response
        log.exception("a session failed")
    finally:
        response.give_back()


async def _relay(response: SessionResponse, client: ClientSocket, in_thread: InThread) -> None:
    session = response.session
    try:
        async with asyncio.timeout(REQUEST_WITHIN_S):
            message = await client.receive_message()
        if message is None:
            return
        first = await in_thread(session.begin, message)
    except (NotAsked, TimeoutError) as error:
        await client.close(NOT_ACCEPTED, str(error) or "the first message must be JSON")
        return
    relay = Relay(
        client,
        idle=settings.MOTLEY_SESSION_IDLE,
        check=partial(in_thread, session.check),
        runs=partial(in_thread, session.runs),
        to_the_end=session.to_the_end,
    )
    await relay.run(session.command, first)
