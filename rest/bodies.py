"""Request bodies: strict serializers, and validation that reports every fault with its place."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from rest.errors import InvalidRequest, faults_of


class Strict(serializers.Serializer[Any]):
    """Serializer that refuses unknown fields: a misspelt field must not be ignored silently."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        names = data if isinstance(data, Mapping) else {}
        faults: dict[str, Any] = {str(name): [self._no_such(str(name))] for name in names if name not in self.fields}
        result: dict[str, Any] = {}
        try:
            result = super().to_internal_value(data)
        except serializers.ValidationError as error:
            faults |= error.detail  # type: ignore[arg-type]  # a serializer's is a map
        if faults:
            raise serializers.ValidationError(faults)
        return result

    def _no_such(self, name: str) -> serializers.ErrorDetail:
        text = f"Unknown field {name!r}. The fields are: {', '.join(self.fields)}."
        return serializers.ErrorDetail(text, "unknown")


class Nothing(Strict):
    """Body of a verb that takes no fields; it may be left out."""


class Text(serializers.CharField):
    """String field that does not convert numbers and booleans to text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


def body_of(request: Request, serializer_class: type[Strict]) -> dict[str, Any]:
    """Validate the body; raise `InvalidRequest` with every fault."""
    body = serializer_class(data=request.data)
    if not body.is_valid():
        raise InvalidRequest(faults_of(body.errors))
    validated: dict[str, Any] = body.validated_data
    return validated
