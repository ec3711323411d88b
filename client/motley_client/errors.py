"""Exceptions of the client: one tree, made from problem details (RFC 9457)."""

from dataclasses import dataclass
from http import HTTPStatus

import httpx


@dataclass(frozen=True)
class FieldError:
    """Error in one field of a request. `pointer` is the JSON pointer to the field."""

    pointer: str
    code: str
    detail: str


class MotleyError(Exception):
    """Base class: the request failed; the message says why."""

    def __init__(
        self, message: str, *, code: str = "", errors: tuple[FieldError, ...] = (), request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.code, self.errors, self.request_id = code, errors, request_id


class AuthError(MotleyError):
    """The token is missing, invalid or expired, or its scope does not allow this."""


class NotFound(MotleyError):
    """The object does not exist, or belongs to a team that you are not a member of."""


class Conflict(MotleyError):
    """The current state does not allow it: the job has finished, or was changed in the meantime."""


class InvalidRequest(MotleyError):
    """The request is invalid; `errors` has one entry per invalid field."""


class ServerError(MotleyError):
    """The service failed, or the address is not that of a Motley service."""


class Unreachable(MotleyError):
    """No response, or the service is starting, stopping or overloaded. Retrying later can help."""


_BY_STATUS: dict[int, type[MotleyError]] = {
    401: AuthError,
    403: AuthError,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    429: Unreachable,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}


def error_of(response: httpx.Response) -> MotleyError:
    """The exception for an error response: from its problem details, or else from its status alone."""
    problem = _problem(response)
    kind = _BY_STATUS.get(response.status_code, InvalidRequest if response.is_client_error else ServerError)
    return kind(
        str(problem.get("detail") or problem.get("title") or _status_message(response)),
        code=str(problem.get("code", "")),
        errors=_field_errors(problem.get("errors")),
        request_id=str(problem.get("request_id") or response.headers.get("X-Request-ID", "")),
    )


def _problem(response: httpx.Response) -> dict[str, object]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _field_errors(errors: object) -> tuple[FieldError, ...]:
    faults = errors if isinstance(errors, list) else []
    return tuple(
        FieldError(*(str(fault.get(name, "")) for name in ("pointer", "code", "detail")))
        for fault in faults
        if isinstance(fault, dict)
    )


def _status_message(response: httpx.Response) -> str:
    if response.is_redirect:
        return f"{response.url} has moved to {response.headers.get('Location')}: use that address."
    phrase = HTTPStatus(response.status_code).phrase if response.status_code in list(HTTPStatus) else "unknown status"
    return f"{response.url} returned {response.status_code} ({phrase}) without details."
