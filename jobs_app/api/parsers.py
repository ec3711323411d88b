"""Bodies of requests."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from jobs_app.errors import encodable

LARGEST_BATCH_BYTES = 64 * 1024 * 1024


class TooLarge(APIException):
    status_code = 413
    default_code = "too_large"


class Json(JSONParser):
    """JSON in UTF-8. Ten thousand brackets are a fault of the caller and no crash of ours, and a field is said once."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        try:
            return json.loads(stream.read().decode(), parse_constant=_refuse, object_pairs_hook=_each_once)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _each_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        twice = Counter(name for name, _ in fields).most_common(1)[0][0]
        raise ValueError(f"{encodable(repr(twice))} is said twice in one object")
    return found


def read_large_body(request: Request, *, most: int) -> None:
    """Before `request.data`: Django's limit holds for every route, and this one may have more."""
    body: Any = request._request
    if int(body.META.get("CONTENT_LENGTH") or 0) > most:
        raise TooLarge(f"Such a request may be at most {most} bytes long; send the jobs in several.")
    body._body = body.read()
