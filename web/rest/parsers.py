"""Parsing of request bodies: strict JSON, a larger size limit for one route, and archives."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.request import Request

from web.rest.errors import encodable

LARGEST_BODY_BYTES = 256 * 1024
"""Of a request whose view says nothing else in `largest_bodies`."""
LARGEST_SPEC_BYTES = 1024 * 1024
LARGEST_BATCH_BYTES = 64 * 1024 * 1024
DEEPEST = 100
"""Levels of arrays and objects in a body: what Python just parses, it may not be able to write out again."""
TOO_DEEP = f"The body is not accepted: its arrays and objects are nested deeper than {DEEPEST} levels."


class TooLarge(APIException):
    status_code = 413
    default_code = "too_large"


class Json(JSONParser):
    """JSON in UTF-8 without NaN, duplicate keys or more than `DEEPEST` levels, each answered with 400.

    A body larger than the view allows is answered with 413, and not parsed.
    """

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        _refuse_large(parser_context or {})
        try:
            body = json.loads(stream.read().decode(), parse_constant=_refuse, object_pairs_hook=_unique_keys)
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}.") from error
        except RecursionError as error:
            raise ParseError(TOO_DEEP) from error
        if _is_deeper(body, DEEPEST):
            raise ParseError(TOO_DEEP)
        return body


class Gzip(BaseParser):
    """Body that the view reads in pieces from `request.stream`; it is not parsed."""

    media_type = "application/gzip"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        return {}


class Bytes(BaseParser):
    """Body that the view reads unchanged from `request.stream`; it is not parsed."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        return {}


def _refuse_large(context: Mapping[str, Any]) -> None:
    """Refuse a body above the limit of its route; one without `Content-Length` is empty for Django."""
    view, request = context.get("view"), context.get("request")
    if request is None:
        return
    most = largest_body_of(view, request.method)
    if int(request.META.get("CONTENT_LENGTH") or 0) > most:
        raise TooLarge(too_large(most))


def too_large(most: int) -> str:
    return f"The body of this request may have at most {most:,} bytes."


def largest_body_of(view: Any, method: str) -> int:
    """The limit of a route: its view's for the action or the method, or the usual one."""
    limits: Mapping[str, int] = getattr(view, "largest_bodies", {})
    return limits.get(getattr(view, "action", None) or method.lower(), LARGEST_BODY_BYTES)


def _is_deeper(body: Any, most: int) -> bool:
    """Whether a parsed body has more levels of arrays and objects; level by level, without recursion."""
    level = [body] if isinstance(body, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        children = (each for one in level for each in (one.values() if isinstance(one, dict) else one))
        level = [child for child in children if isinstance(child, dict | list)]
    return bool(level)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        duplicate = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {encodable(repr(duplicate))} appears twice in one object")
    return found


def read_large_body(request: Request, *, most: int) -> None:
    """Read the body with a limit of its own; call it before `request.data`, to which Django's limit applies."""
    body: Any = request._request
    if int(body.META.get("CONTENT_LENGTH") or 0) > most:
        raise TooLarge(f"{too_large(most)} Split it into several requests.")
    body._body = body.read()
