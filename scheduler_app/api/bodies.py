"""What a caller sends, checked: every fault at once, each with its place."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from jobs_app.errors import faults_of
from jobs_app.fields import Strict
from scheduler_app.errors import InvalidRequest


class Words(serializers.CharField):
    """Text for people; a number or a flag is a mistake."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


def body_of(request: Request, kind: type[Strict]) -> dict[str, Any]:
    """The body as `kind` reads it; `InvalidRequest` with its faults."""
    body = kind(data=request.data)
    if not body.is_valid():
        raise InvalidRequest(faults_of(body.errors))
    validated: dict[str, Any] = body.validated_data
    return validated
