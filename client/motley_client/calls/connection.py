"""HTTP to the service: sends, repeats what may be repeated, and turns problems into exceptions."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self
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

TIMEOUT_S = 30.0
REPEATS = 3
LONGEST_PAUSE_S = 30.0
"""How long one call bears with `Retry-After`, over all its repetitions."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
NOT_DONE = (429, 503)
STILL_UNDER_WAY = 409
"""What an idempotency key answers while the first request with it is still at work."""


class Connection:
    """One connection to a service, as the owner of the token. All errors are `MotleyError`s.

    What only reads, or can be said twice without harm, is repeated when the connection breaks; the rest, when it
    was never sent, or was turned away.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = 600.0,
        poll_s: float = 1.0,
        timeout_s: float = TIMEOUT_S,
        repeats: int = REPEATS,
    ) -> None:
        """`patience_s`: how long `wait` and `follow_logs` bear with a service that is away, as in an upgrade.

        `poll_s`: how long they pause before they ask again.
        """
        if not (token.isascii() and token.isprintable()):
            raise AuthError("The token has characters that no token has: copy it again.")
        self._patience_s, self._poll_s = patience_s, poll_s
        usual = Retry(
            total=repeats, backoff_factor=0.1, max_backoff_wait=LONGEST_PAUSE_S, total_timeout=LONGEST_PAUSE_S
        )
        self._once = usual.copy_with(
            allowed_methods=["POST", "PATCH"], status_forcelist=NOT_DONE, retry_on_exceptions=NEVER_SENT
        )
        self._keyed = usual.copy_with(
            allowed_methods=["POST"], status_forcelist={*usual.status_forcelist, STILL_UNDER_WAY}
        )
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout_s,
            transport=RetryTransport(retry=usual),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _pages(self, path: str, query: Mapping[str, object]) -> Iterator[Any]:
        cursor: object = None
        while True:
            page = self._json("GET", path, params=given({**query, "cursor": cursor}))
            yield from page["results"]
            if not (cursor := page["next"]):
                return

    def _json(self, method: str, path: str, **request: Any) -> Any:
        response = self._send(method, path, **request)
        try:
            return response.json()
        except ValueError:
            raise no_motley(response) from None

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        if "json" in request:
            request["content"] = _written(request.pop("json"))
            request["headers"] = {**request.get("headers", {}), "Content-Type": "application/json"}
        if method in {"POST", "PATCH"}:
            keyed = "Idempotency-Key" in request.get("headers", {})
            request["extensions"] = {"retry": self._keyed if keyed else self._once}
        try:
            response = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"No answer from {self._http.base_url}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise error_of(response)
        return response


def place(*steps: object) -> str:
    """A path of which no step, whatever it says, can lead elsewhere."""
    return "/".join(quote(str(step), safe="") for step in steps)


def given(query: Mapping[str, object]) -> dict[str, Any]:
    """The query without what was left out; times are written as the service reads them."""
    said = {name: value for name, value in query.items() if value not in (None, [], ())}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in said.items()}


def no_motley(response: httpx.Response) -> MotleyError:
    return ServerError(f"What answers at {response.url} is no Motley service: check the address.")


def _written(body: Any) -> bytes:
    """The body as JSON; `InvalidRequest` at the field that JSON cannot hold, as infinity or a date."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        text = f"JSON cannot hold this: {error}"
        raise InvalidRequest(
            text, code="not_json", errors=(FieldError(_place_of_fault(body), "not_json", text),)
        ) from error


def _place_of_fault(body: Any) -> str:
    """As a pointer, and no deeper than to a field of a job of a batch: what holds itself has no end."""
    pointer = ""
    for _ in range(3):
        faulty = [(step, part) for step, part in _parts(body) if not _is_json(step, part)]
        if not faulty:
            break
        step, body = faulty[0]
        pointer += f"/{str(step).encode(errors='backslashreplace').decode()}"
    return pointer


def _parts(body: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(body, Mapping):
        return body.items()
    return enumerate(body) if isinstance(body, list) else ()


def _is_json(step: Any, part: Any) -> bool:
    try:
        json.dumps({step: part}, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True
