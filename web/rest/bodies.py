"""Request bodies: strict serializers, and validation that reports every fault with its place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.validators import ProhibitNullCharactersValidator
from rest_framework import serializers
from rest_framework.fields import get_error_detail
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.validators import ProhibitSurrogateCharactersValidator

from web.rest.choices import guess_of, shortened
from web.rest.errors import MORE_FAULTS, MOST_FAULTS, InvalidRequest, faults_of

NON_FIELD_ERRORS_KEY = api_settings.NON_FIELD_ERRORS_KEY
NO_NUL, NO_SURROGATE = ProhibitNullCharactersValidator(), ProhibitSurrogateCharactersValidator()
MOST_NAMED = 8
"""Fields of an object that are named where something else was sent: a job has forty."""
MOST_UNKNOWN = 20
"""Unknown fields of an object that are listed, each with a guess; the rest is counted."""
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
            faults = _joined(faults, in_words(error.detail, data))
        if faults:
            raise serializers.ValidationError(faults)
        return result

    def _no_object(self, data: Any) -> str:
        names = [*self.fields][:MOST_NAMED]
        which = f" with {'the fields' if len(names) == len(self.fields) else 'fields such as'} {', '.join(names)}"
        return f"An object{which if names else ''} is expected, not {kind_of(data)}."

    def _unknown(self, names: Sequence[str]) -> dict[str, Any]:
        """Faults of unknown fields, each with the closest known name; the first without one lists all fields.

        A guess takes a comparison with each field: only the first fields have one, and the others are counted.
        """
        guesses = {name: guess_of(name, self.fields) for name in names[:MOST_UNKNOWN]}
        first = next((name for name, guess in guesses.items() if not guess), None)
        guesses |= {first: f" The fields are: {', '.join(self.fields)}."} if first is not None else {}
        faults = {
            name: [serializers.ErrorDetail(f"Unknown field {shortened(name)}.{guess}", "unknown")]
            for name, guess in guesses.items()
        }
        if left := len(names) - len(guesses):
            text = f"There are {left:,} more unknown fields, which are not listed."
            faults[NON_FIELD_ERRORS_KEY] = [serializers.ErrorDetail(text, MORE_FAULTS)]
        return faults


def _joined(faults: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Faults of both; those of the whole object are one list."""
    whole = [*faults.get(NON_FIELD_ERRORS_KEY, ()), *others.get(NON_FIELD_ERRORS_KEY, ())]
    return faults | dict(others) | ({NON_FIELD_ERRORS_KEY: whole} if whole else {})


class ListOf(serializers.ListField):
    """List that is measured before its values are looked at, and of which that ends after `MOST_FAULTS` faulty ones."""

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        found: list[Any] = super().to_internal_value(data)
        return found

    def run_child_validation(self, data: Iterable[Any]) -> list[Any]:
        return [value for _, value in _valid(self.child, enumerate(data))]


class DictOf(serializers.DictField):
    """Object of any names of which the values are looked at until `MOST_FAULTS` are faulty."""

    def __init__(self, *, most: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._most = most

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if self._most is not None and isinstance(data, Mapping) and len(data) > self._most:
            raise serializers.ValidationError(f"It may have at most {self._most:,} names, not {len(data):,}.")
        found: dict[str, Any] = super().to_internal_value(data)
        return found

    def run_child_validation(self, data: Mapping[Any, Any]) -> dict[str, Any]:
        return dict(_valid(self.child, ((str(name), one) for name, one in data.items())))


def _valid(child: Any, items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Each value as the child reads it, with its place; raises with the first faults."""
    faults: dict[Any, Any] = {}
    places = iter(items)
    read = list(_read_each(child, places, faults))
    if not faults:
        return read
    is_cut = len(faults) == MOST_FAULTS and next(places, None) is not None
    raise serializers.ValidationError(with_note(faults, is_cut=is_cut))


def with_note(faults: dict[Any, Any], *, is_cut: bool) -> dict[Any, Any]:
    """Faults of values by place, with a note if the values after them were not looked at."""
    if not is_cut:
        return faults
    text = f"Values after the first {MOST_FAULTS} faulty ones were not looked at."
    return faults | {NON_FIELD_ERRORS_KEY: [serializers.ErrorDetail(text, MORE_FAULTS)]}


def _read_each(child: Any, items: Iterator[tuple[Any, Any]], faults: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for place, value in items:
        try:
            yield place, child.run_validation(value)
        except (serializers.ValidationError, DjangoValidationError) as error:
            faults[place] = error.detail if isinstance(error, serializers.ValidationError) else get_error_detail(error)
            if len(faults) == MOST_FAULTS:
                return


class Nothing(Strict):
    """Body of a verb that takes no fields; it may be left out."""


class Text(serializers.CharField):
    """String field that does not convert numbers and booleans to text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class ObjectByName(serializers.SlugRelatedField[Any]):
    """Object of a table, by its name; characters that a database refuses are refused before it is asked."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str):
            NO_NUL(data)
            NO_SURROGATE(data)
        return super().to_internal_value(data)


def body_of(request: Request, serializer_class: type[Strict]) -> dict[str, Any]:
    """Validate the body; raise `InvalidRequest` with every fault."""
    body = serializer_class(data=request.data)
    if not body.is_valid():
        raise InvalidRequest(faults_of(body.errors))
    validated: dict[str, Any] = body.validated_data
    return validated
