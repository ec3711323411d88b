"""Answers of the front itself, to requests that it does not forward."""

import json
from http import HTTPStatus
from uuid import uuid4

HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'"),
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
]


class Refused(Exception):
    """The request is answered by the front, and its connection is closed."""

    status, code, retry_after_s = 400, "bad_request", 0
    detail = "The request is not valid HTTP."


class TooSlow(Refused):
    status, code = 408, "too_slow"
    detail = "The request did not arrive in time: send it again."


class TooLong(Refused):
    status, code = 431, "too_large"
    detail = "The head of the request is too long."


class Busy(Refused):
    status, code, retry_after_s = 503, "busy", 5
    detail = "The service has as many requests as it can take: come again."


class Away(Refused):
    status, code, retry_after_s = 503, "starting", 2
    detail = "The service is starting: come again."


def answer(refused: Refused, target: str) -> tuple[list[tuple[str, str]], bytes, str]:
    """Header fields and body, a problem document over REST; and the request's id, for the log."""
    request_id = uuid4().hex
    if target.startswith("/api"):
        kind = "application/problem+json"
        body = json.dumps(_problem(refused, target.partition("?")[0], request_id)).encode()
    else:
        kind, body = "text/plain; charset=utf-8", f"{refused.detail}\n".encode()
    headers = [*HEADERS, ("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Request-ID", request_id)]
    if refused.retry_after_s:
        headers.append(("Retry-After", str(refused.retry_after_s)))
    return headers, body, request_id


def _problem(refused: Refused, path: str, request_id: str) -> dict[str, object]:
    """As those of the service (`config.problems`)."""
    return {
        "type": f"urn:motley:problem:{refused.code}",
        "title": HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "detail": refused.detail,
        "instance": path,
        "code": refused.code,
        "errors": [],
        "request_id": request_id,
    }
