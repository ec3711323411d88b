"""HTTPS connection of an agent to its service."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from engines.agent.codec import BadMessage, decode, encode
from engines.agent.messages import Joined, Joining, Orders, Sync

Answer = TypeVar("Answer")
TIMEOUT_S = 20.0
LONG_TIMEOUT_S = 600.0
"""For files."""
NOT_OURS = (401, 403)
ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Unheard(Exception):
    """The service cannot be reached, or has an error of its own: worth repeating."""


class Refused(Exception):
    """The service refuses the request; `token`: because of the token."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def token(self) -> bool:
        return self.status in NOT_OURS


def checked_url(url: str) -> str:
    """The service's address; raises `ValueError` where the token would be sent in clear over a network."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ON_THIS_MACHINE):
        return url.rstrip("/")
    raise ValueError(f"{url} is no address that begins with https://: the token would be sent in clear.")


class Connection:
    """Requests with a token to the routes below `/api/v1/agent/`."""

    def __init__(self, url: str, token: str) -> None:
        self._base = f"{checked_url(url)}/api/v1/agent"
        self._token = token

    def join(self, joining: Joining) -> Joined:
        return self._ask("join", joining, Joined)

    def sync(self, told: Sync) -> Orders:
        return self._ask("sync", told, Orders)

    def append_log(self, attempt: int, stream: str, rank: int, offset: int, data: bytes) -> int:
        """Send bytes of a log; returns how many of it the service has now, from where to go on."""
        path = f"attempts/{attempt}/logs/{stream}/{rank}?offset={offset}"
        return int(json.loads(self._request("PUT", path, data, content_type="application/octet-stream"))["size"])

    def send_checkpoints(self, attempt: int, archive: Path) -> None:
        with archive.open("rb") as file:
            size = {"Content-Length": str(archive.stat().st_size)}
            self._request("PUT", f"attempts/{attempt}/checkpoints", file, content_type="application/gzip", more=size)

    def fetch(self, attempt: int, what: str, path: Path) -> None:
        """Store the attempt's `code` or `checkpoints` in a file."""
        beside = path.with_name(f".{path.name}")
        with self._open("GET", f"attempts/{attempt}/{what}") as answer, beside.open("wb") as file:
            shutil.copyfileobj(answer, file)
        beside.replace(path)

    def _ask(self, path: str, message: object, kind: type[Answer]) -> Answer:
        body = json.dumps(encode(message)).encode()
        try:
            return decode(kind, json.loads(self._request("POST", path, body, timeout_s=TIMEOUT_S)))
        except (BadMessage, json.JSONDecodeError) as error:
            raise Unheard(f"The answer of the service was not understood: {error}") from error

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes],
        *,
        content_type: str = "application/json",
        more: Mapping[str, str] | None = None,
        timeout_s: float = LONG_TIMEOUT_S,
    ) -> bytes:
        headers = {"Content-Type": content_type, **(more or {})}
        with self._open(method, path, body, headers, timeout_s) as answer:
            content: bytes = answer.read()
            return content

    def _open(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = LONG_TIMEOUT_S,
    ) -> Any:
        bearer = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(  # noqa: S310 - checked_url lets no other scheme pass
            f"{self._base}/{path}", data=body, method=method, headers={**bearer, **(headers or {})}
        )
        try:
            return _opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except OSError as error:  # urllib's own errors and those of sockets
            raise Unheard(f"The service does not answer: {getattr(error, 'reason', error)}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _refusal(error: urllib.error.HTTPError) -> Exception:
    try:
        text = str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        text = f"the service answered {error.code}"
    return Unheard(text) if error.code >= 500 or error.code == 429 else Refused(text, status=error.code)
