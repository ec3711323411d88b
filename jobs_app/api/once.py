"""Submissions that may be sent again: the header Idempotency-Key."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.representation import etag_of
from jobs_app.idempotency import KEPT, Named, answer_once

Admitted = TypeVar("Admitted")
HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": 200},
    OpenApiParameter.HEADER,
    description="A text of your own, 1 to 200 printable ASCII characters. The same key and body get the first answer "
    f"again, with `Idempotency-Replayed: true`, for {KEPT.total_seconds() / 3600:.0f} hours; another body is a 422, "
    "and a request that is still under way a 409.",
)


def created_once(request: Request, admit: Callable[[], Admitted], enter: Callable[[Admitted], Any]) -> Response:
    """201 with what was entered, or with the first answer to the same key."""
    answer, replayed = answer_once(_named(request), admit, enter, status=201)
    headers = {"ETag": etag_of(answer)} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return Response(answer, status=201, headers=headers)


def person(request: Request) -> User:
    """Who calls."""
    user: User = request.user  # type: ignore[assignment]  # `InScope` lets nobody else in
    return user


def _named(request: Request) -> Named | None:
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not re.fullmatch(r"[ -~]{1,200}", key):
        raise ValidationError({HEADER: ["Write 1 to 200 printable ASCII characters."]})
    return Named.of(person(request), f"{request.method} {request.path}", key, request.data)
