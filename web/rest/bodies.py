"""Request bodies: strict serializers, and validation that reports every fault with its place."""

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.settings import api_settings

from web.rest.choices import guess_of
from web.rest.errors import InvalidRequest, faults_of

NON_FIELD_ERRORS_KEY = api_settings.NON_FIELD_ERRORS_KEY
MOST_NAMED = 8
"""Fields of an object that are named where something else was sent: a job has forty."""
KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}
EXPECTED = {
    "Not a valid string.": "A string",
    "Expected a list of items": "A list",
    "Expected a dictionary of items": "An object",
}
"""What REST framework expects, by the beginning of its messages, which name types of Python or none."""


def kind_of(value: Any) -> str:
    """JSON type of a value, for messages. An array is called a list: in Motley an array is a job array."""
    return KINDS.get(type(value), "something else")


def in_words(detail: Any, data: Any) -> Any:
    """REST framework's error detail of `data`, with the kinds of values that were expected and sent."""
    if isinstance(detail, dict):
        return {name: in_words(inner, _part(data, name)) for name, inner in detail.items()}
    if isinstance(detail, list):
        return [
            in_words(inner, _part(data, place) if isinstance(inner, dict) else data)
            for place, inner in enumerate(detail)
        ]
    for beginning, kind in EXPECTED.items():
        if str(detail).startswith(beginning):
            return serializers.ErrorDetail(f"{kind} is expected, not {kind_of(data)}.", detail.code)
    return detail


def _part(data: Any, name: Any) -> Any:
    """The value of a field, or a member of a list; the value itself where the fault is of the whole."""
    try:
        return data[name]
    except (LookupError, TypeError):
        return data


class Strict(serializers.Serializer[Any]):
    """Serializer that refuses unknown fields: a misspelt field must not be ignored silently."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({NON_FIELD_ERRORS_KEY: [self._no_object(data)]}, "invalid")
        faults: dict[str, Any] = self._unknown([str(name) for name in data if name not in self.fields])
        result: dict[str, Any] = {}
        try:
            result = super().to_internal_value(data)
        except serializers.ValidationError as error:
            faults |= in_words(error.detail, data)
        if faults:
            raise serializers.ValidationError(faults)
        return result

    def _no_object(self, data: Any) -> str:
        names = [*self.fields][:MOST_NAMED]
        which = f" with {'the fields' if len(names) == len(self.fields) else 'fields such as'} {', '.join(names)}"
        return f"An object{which if names else ''} is expected, not {kind_of(data)}."

    def _unknown(self, names: Sequence[str]) -> dict[str, Any]:
        """Faults of unknown fields, each with the closest known name; the first without one lists all fields."""
        guesses = {name: guess_of(name, self.fields) for name in names}
        first = next((name for name, guess in guesses.items() if not guess), None)
        guesses |= {first: f" The fields are: {', '.join(self.fields)}."} if first is not None else {}
        return {
            name: [serializers.ErrorDetail(f"Unknown field {name!r}.{guess}", "unknown")]
            for name, guess in guesses.items()
        }


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
