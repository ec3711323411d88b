"""Entity tags: conditional GET by If-None-Match (304) and optimistic concurrency by If-Match (412), as in RFC 9110.

A resource has a strong ETag of its whole representation, whichever of its fields are sent.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.utils.encoders import JSONEncoder

IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="An ETag: 304 if the resource has not changed since."
)
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="An ETag: 412 if the resource has changed since."
)


class Stale(APIException):
    """412: the resource has changed since the caller read it."""

    status_code = 412
    default_code = "stale"
    default_detail = "The resource has changed since you read it. Get it again before you change it."


def etag_of(whole: Mapping[str, Any]) -> str:
    """Compute the strong ETag of a representation: equal only if everything that is shown is equal."""
    shown = {name: value for name, value in whole.items() if name != "etag"}
    return f'"{hashlib.sha256(json.dumps(shown, cls=JSONEncoder, sort_keys=True).encode()).hexdigest()}"'


def is_unchanged(request: Request, etag: str) -> bool:
    """Whether If-None-Match holds this ETag, compared weakly: the caller has this state already."""
    seen = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in seen or etag in {tag.removeprefix("W/") for tag in seen}


def refuse_stale(request: Request, whole: Callable[[], Mapping[str, Any]]) -> None:
    """Raise `Stale` unless If-Match is absent or holds the present ETag. Call it while the resource is locked."""
    if "If-Match" not in request.headers:
        return
    seen = parse_etags(request.headers["If-Match"])
    if "*" not in seen and etag_of(whole()) not in seen:
        raise Stale
