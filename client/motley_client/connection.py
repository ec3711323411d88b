"""HTTP connection to the service: retries, pagination, and problem details (RFC 9457) raised as exceptions."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from httpx_retries import Retry, RetryTransport

from motley_client.errors import (
    AuthError,
    FieldError,
    InvalidRequest,
    MotleyError,
    ServerError,
    Unreachable,
    error_of,
)

T = TypeVar("T")

Spec = Mapping[str, object]
"""Fields of a job, or of another thing that a route takes."""

TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 300.0
"""Time in which the service checks and stores an archive, or copies a checkpoint."""
RETRIES = 3
MAX_RETRY_WAIT_S = 30.0
"""Longest total time that one call waits for `Retry-After`, over all its retries."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
REJECTED = (429, 503)
IN_PROGRESS = 409
"""Status of a repeated idempotency key while the first request with it is still being handled."""


class Connection:
    """HTTP connection to a service with one token. All errors are `MotleyError`s.

    Idempotent requests are retried when the connection breaks; POST and PATCH without an idempotency key only when the
    request was never sent, or the service rejected it (429, 503).
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = 600.0,
        poll_s: float = 1.0,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        """Open a connection; no request is sent yet.

        `patience_s`: how long `wait` and `follow_logs` tolerate a service that is unreachable, as during an upgrade.
        `poll_s`: pause between two polls of these.
        """
        if not (token.isascii() and token.isprintable()):
            raise AuthError("The token contains invalid characters: copy it again.")
        self.url = url.rstrip("/")
        self._patience_s, self._poll_s = patience_s, poll_s
        default = Retry(
            total=retries, backoff_factor=0.1, max_backoff_wait=MAX_RETRY_WAIT_S, total_timeout=MAX_RETRY_WAIT_S
        )
        self._retry_rejected = default.copy_with(
            allowed_methods=["POST", "PATCH"], status_forcelist=REJECTED, retry_on_exceptions=NEVER_SENT
        )
        self._retry_keyed = default.copy_with(
            allowed_methods=["POST"], status_forcelist={*default.status_forcelist, IN_PROGRESS}
        )
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout_s,
            # Without one it makes a second for asyncio, and each reads the authorities of TLS: 27 ms of CPU time.
            transport=RetryTransport(httpx.HTTPTransport(), retry=default),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a `with` block does so at its end."""
        self._http.close()

    def _retry_unreachable(self, call: Callable[[], T]) -> T:
        """The result of `call`, repeated while the service is unreachable, for `patience_s` at most."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except Unreachable:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(self._poll_s)

    def _pages(self, path: str, query: Mapping[str, object]) -> Iterator[Any]:
        cursor: object = None
        while True:
            page = self._json("GET", path, params=without_empty({**query, "cursor": cursor}))
            yield from page["results"]
            if not (cursor := page["next"]):
                return

    def _json(self, method: str, path: str, **request: Any) -> Any:
        response = self._send(method, path, **request)
        try:
            return response.json()
        except ValueError:
            raise not_a_motley_service(response) from None

    def _blocks(self, path: str, **request: Any) -> Iterator[bytes]:
        """The body block by block; what may be large is not kept."""
        headers = {"Accept": "application/octet-stream, application/json"}
        try:
            with self._http.stream("GET", path, headers=headers, **request) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response)
                yield from response.iter_bytes()
        except httpx.HTTPError as error:
            raise Unreachable(f"Cannot reach {self._http.base_url}: {str(error) or type(error).__name__}") from error

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        if "json" in request:
            request["content"] = _encoded(request.pop("json"))
            request["headers"] = {**request.get("headers", {}), "Content-Type": "application/json"}
        if method in {"POST", "PATCH"}:
            keyed = "Idempotency-Key" in request.get("headers", {})
            request["extensions"] = {"retry": self._retry_keyed if keyed else self._retry_rejected}
        try:
            response = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"Cannot reach {self._http.base_url}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise error_of(response)
        return response


def url_path(*segments: object) -> str:
    """The segments as a URL path, each percent-encoded, so that none can lead to another route."""
    return "/".join(quote(str(segment), safe="") for segment in segments)


def without_empty(query: Mapping[str, object]) -> dict[str, Any]:
    """The query without empty values, and days and times as ISO 8601."""
    present = {name: value for name, value in query.items() if value not in (None, [], ())}
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in present.items()}


def with_key(key: str | None) -> dict[str, str]:
    """The header by which a request that is sent again makes nothing twice; None: a new key."""
    return {"Idempotency-Key": key or str(uuid.uuid4())}


def not_a_motley_service(response: httpx.Response) -> MotleyError:
    """The exception for a response that only another kind of server would give."""
    return ServerError(f"{response.url} is not a Motley service: check the address.")


def _encoded(body: Any) -> bytes:
    """The body as JSON; `InvalidRequest` with a pointer to the field that JSON cannot represent, as infinity."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        why = "write a finite number." if "Out of range float" in str(error) else error
        text = f"JSON cannot represent this value: {why}"
        fault = FieldError(_pointer_to_fault(body), "not_json", text)
        raise InvalidRequest(text, code="not_json", errors=(fault,)) from error


def _pointer_to_fault(body: Any) -> str:
    """JSON pointer, at most three levels deep (a field of a job of a batch): a body that contains itself has no end."""
    pointer = ""
    for _ in range(3):
        faulty = [(key, value) for key, value in _items(body) if not _is_json(key, value)]
        if not faulty:
            break
        key, body = faulty[0]
        pointer += f"/{str(key).encode(errors='backslashreplace').decode()}"
    return pointer


def _items(body: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(body, Mapping):
        return body.items()
    return enumerate(body) if isinstance(body, list) else ()


def _is_json(key: Any, value: Any) -> bool:
    try:
        json.dumps({key: value}, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True
