"""HTTPS connection of an agent to its service."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from engines.agent.codec import BadMessage, decode, encode
from engines.agent.kept_connection import KeptConnection, direct_connection, forget_terms, needs_a_proxy, tls_terms
from engines.agent.messages import Joined, Joining, Orders, Sync
from engines.agent.websocket import WebSocket

Answer = TypeVar("Answer")
TIMEOUT_S = 20.0
API = "/api/v1/agent"
LONG_TIMEOUT_S = 600.0
"""For files."""
PIECE_BYTES = 1 << 20
UNAUTHORIZED, CONFLICT, TOO_LARGE = 401, 409, 413
FORKED = "forked_agent"
"""Code of the refusal of a copy of a machine."""
OTHER_RELEASE = "other_release"
"""Code of the refusal of an agent whose version of the messages is another than the service's."""
REFUSALS = (UNAUTHORIZED, 404, CONFLICT)
"""Answers of the service by which repeating is no use. Those of a proxy are not the service's."""
PROBLEM = "application/problem+json"
NOT_HEARD = (OSError, HTTPException)
"""urllib's own errors and those of sockets, and answers that are none, or are cut short."""
ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Unheard(Exception):
    """The service cannot be reached, or it or a proxy has an error or a rate limit: repeat the request."""


class ArchiveTooLarge(Unheard):
    """The archive is larger than the service, or a proxy, accepts: it may be sent again after a while."""


class Refused(Exception):
    """The service itself refuses the request."""

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


def checked_url(url: str) -> str:
    """The service's address; raises `ValueError` where the token would be sent in clear over a network."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ON_THIS_MACHINE):
        return url.rstrip("/")
    raise ValueError(f"{url} is no address that begins with https://: the token would be sent in clear.")


class _GivesWay:
    """File that is sent while a condition holds."""

    def __init__(self, file: IO[bytes], may_go_on: Callable[[], bool]) -> None:
        self._file, self._may_go_on = file, may_go_on

    def read(self, size: int = -1, /) -> bytes:
        if not self._may_go_on():
            raise Unheard("the last archive of another attempt goes first")
        return self._file.read(size)


class Connection:
    """Requests with a token to the routes below `/api/v1/agent/`."""

    def __init__(self, url: str, token: str) -> None:
        self._base = checked_url(url) + API
        self._token = token
        self._kept = None if needs_a_proxy(self._base) else KeptConnection(self._base, TIMEOUT_S)

    def join(self, joining: Joining) -> Joined:
        return self._ask("join", joining, Joined)

    def sync(self, told: Sync) -> Orders:
        return self._ask("sync", told, Orders)

    def append_log(self, attempt: int, stream: str, rank: int, offset: int, data: bytes) -> int:
        """Send bytes of a log; returns how many of it the service has now, from where to go on."""
        path = f"attempts/{attempt}/logs/{stream}/{rank}?offset={offset}"
        answer = self._request("PUT", path, data, content_type="application/octet-stream")
        try:
            return int(json.loads(answer)["size"])
        except (ValueError, KeyError, TypeError) as error:
            raise Unheard(f"The answer of the service was not understood: {error}") from error

    def send_checkpoints(self, attempt: int, archive: Path, *, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Send the archive; raises `Unheard` as soon as it may not go on: the service drops what is cut short."""
        path, size = f"attempts/{attempt}/checkpoints", {"Content-Length": str(archive.stat().st_size)}
        with archive.open("rb") as file:
            body = _GivesWay(file, may_go_on)
            self._request("PUT", path, body, content_type="application/gzip", more=size)

    def fetch(self, attempt: int, what: str, path: Path) -> None:
        """Store the attempt's `code` or `checkpoints` in a file; raises `Unheard` if the answer was cut short."""
        beside = path.with_name(f".{path.name}")
        with self._open("GET", f"attempts/{attempt}/{what}") as answer, beside.open("wb") as file:
            while piece := _read(answer, PIECE_BYTES):
                file.write(piece)
            if answer.length:  # bytes that are still to come
                raise Unheard(f"The {what} of attempt {attempt} were cut short: {answer.length} bytes are missing.")
        beside.replace(path)

    def fetch_program(self, path: Path) -> None:
        """Store the program of the agent that the service serves in a file."""
        address = f"{self._base.removesuffix(API)}/agent/motley-agent.pyz"
        try:
            with _opener.open(address, timeout=TIMEOUT_S) as answer:
                path.write_bytes(_read(answer))
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except NOT_HEARD as error:
            raise _unheard(error) from error

    def websocket(self, path: str) -> WebSocket:
        """Open a WebSocket; raises `NoWebSocket`, `OSError` and `HTTPException`."""
        address = f"{self._base}/{path}"
        return WebSocket.open(direct_connection(address, TIMEOUT_S), urlsplit(address).path, self._token)

    def close(self) -> None:
        """Close what is kept open between messages."""
        if self._kept is not None:
            self._kept.close()

    def _ask(self, path: str, message: object, kind: type[Answer]) -> Answer:
        body = json.dumps(encode(message)).encode()
        try:
            return decode(kind, json.loads(self._post(path, body)))
        except (BadMessage, ValueError) as error:
            raise Unheard(f"The answer of the service was not understood: {error}") from error

    def _post(self, path: str, body: bytes) -> bytes:
        """Send a message on the kept connection, or on a new one where there is a proxy."""
        if self._kept is None:
            return self._request("POST", path, body, timeout_s=TIMEOUT_S)
        headers = {**self._bearer, "Content-Type": "application/json"}
        try:
            return self._kept.post(f"{self._base}/{path}", body, headers)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except NOT_HEARD as error:
            raise _unheard(error) from error

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | _GivesWay,
        *,
        content_type: str = "application/json",
        more: Mapping[str, str] | None = None,
        timeout_s: float = LONG_TIMEOUT_S,
    ) -> bytes:
        headers = {"Content-Type": content_type, **(more or {})}
        with self._open(method, path, body, headers, timeout_s) as answer:
            return _read(answer)

    def _open(
        self,
        method: str,
        path: str,
        body: bytes | _GivesWay | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = LONG_TIMEOUT_S,
    ) -> Any:
        request = urllib.request.Request(  # noqa: S310 - checked_url lets no other scheme pass
            f"{self._base}/{path}", data=body, method=method, headers={**self._bearer, **(headers or {})}
        )
        try:
            return _opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except NOT_HEARD as error:
            raise _unheard(error) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _HearsEarly(HTTPConnection):
    """Reads the answer of a service that refuses an archive and closes the connection before it has read it."""

    def request(self, *args: Any, **more: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            super().request(*args, **more)


class _HearsEarlySecurely(_HearsEarly, HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_HearsEarly, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_HearsEarlySecurely, request, context=tls_terms())


_opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)


def _read(answer: Any, most: int | None = None) -> bytes:
    try:
        content: bytes = answer.read(most)
    except NOT_HEARD as error:
        raise _unheard(error) from error
    return content


def _unheard(error: Exception) -> Unheard:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, SSLCertVerificationError):
        forget_terms()
    return Unheard(f"The service does not answer: {getattr(reason, 'reason', reason)}")


def _refusal(error: urllib.error.HTTPError) -> Exception:
    """`Refused` only for the service's own answers; a proxy's 302, 404 or 407 may be temporary."""
    problem = _problem_in(error)
    text = str(problem.get("detail", f"the service, or a proxy, answered {error.code}"))
    if error.code == TOO_LARGE:
        return ArchiveTooLarge(text)
    if "detail" not in problem or error.headers.get_content_type() != PROBLEM or error.code not in REFUSALS:
        return Unheard(text)
    return Refused(text, status=error.code, code=str(problem.get("code", "")))


def _problem_in(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    """The answer's object; empty if it is none."""
    try:
        return dict(json.loads(error.read()))
    except (*NOT_HEARD, ValueError, TypeError):
        return {}
