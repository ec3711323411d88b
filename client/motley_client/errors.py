"""Everything that can go wrong between a client and the service: one tree."""

from dataclasses import dataclass
from http import HTTPStatus

import httpx


@dataclass(frozen=True)
class FieldError:
    """One fault of a request. `pointer` is the JSON pointer of the field."""

    pointer: str
    code: str
    detail: str


class MotleyError(Exception):
    """The service did not do as asked; the message says why."""

    def __init__(
        self, message: str, *, code: str = "", errors: tuple[FieldError, ...] = (), request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.code, self.errors, self.request_id = code, errors, request_id


class AuthError(MotleyError):
    """The token is missing, wrong, expired, or may not do this."""


class NotFound(MotleyError):
    """There is no such thing, or it belongs to a team of others."""


class Conflict(MotleyError):
    """The state of things forbids it: the job has finished, or somebody was first."""


class InvalidRequest(MotleyError):
    """The request is at fault; `errors` holds what is wrong with each field."""


class ServerError(MotleyError):
    """The service failed, or what answers at this address is no Motley."""


class Unreachable(MotleyError):
    """Nobody answers, or the service is starting, stopping or too busy. Asking again later can help."""


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
    """The exception for an answer that is no success: from its RFC 9457 body, or the bare status."""
    problem = _problem(response)
    kind = _BY_STATUS.get(response.status_code, InvalidRequest if response.is_client_error else ServerError)
    return kind(
        str(problem.get("detail") or problem.get("title") or _in_words(response)),
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


def _in_words(response: httpx.Response) -> str:
    if response.is_redirect:
        return f"{response.url} has moved to {response.headers.get('Location')}: use that address."
    phrase = (
        HTTPStatus(response.status_code).phrase if response.status_code in list(HTTPStatus) else "an unknown status"
    )
    return f"{response.url} answered {response.status_code} ({phrase}) without saying more."
