"""Bodies of requests about jobs."""

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

LARGEST_BATCH_BYTES = 64 * 1024 * 1024


class TooLarge(APIException):
    status_code = 413
    default_code = "too_large"


class Json(JSONParser):
    """JSON; ten thousand brackets are a fault of the caller and no crash of ours."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error


def read_large_body(request: Request, *, most: int) -> None:
    """Before `request.data`: Django's limit holds for every route, and this one may have more."""
    body: Any = request._request
    if int(body.META.get("CONTENT_LENGTH") or 0) > most:
        raise TooLarge(f"Such a request may be at most {most} bytes long; send the jobs in several.")
    body._body = body.read()
