"""Messages as JSON: dataclasses are encoded by their fields and decoded by their types, which checks every value."""

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, time, timedelta
from enum import Enum
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Message = TypeVar("Message")
AS_IT_IS = frozenset({str, int, float, bool, type(None)})
NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
GREATEST_INTEGER = 2**63 - 1
"""Larger ones, and numbers as 1e999, which Python reads as infinite, have no place in databases."""


class BadMessage(ValueError):
    """The value at this place is not of its type."""

    def __init__(self, place: str, expected: str) -> None:
        super().__init__(f"{place or '/'}: {expected} was expected.")


def encode(value: Any) -> Any:
    """The value as maps, lists, texts, numbers and null; durations are seconds."""
    kind: Any = type(value)
    if kind in AS_IT_IS:  # most values, and each message is encoded every second
        return value
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in _names_of(kind)}
    if isinstance(value, Mapping):
        return {str(name): encode(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encode(inner) for inner in value]
    return next((write(value) for plain, write in _AS_PLAIN.items() if isinstance(value, plain)), value)


_AS_PLAIN: dict[Any, Any] = {
    datetime: datetime.isoformat,
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    Path: str,
}


def decode(kind: type[Message], raw: Any) -> Message:
    """The message of this type. Fields that it does not have are ignored: the other side may be newer.

    Raises `BadMessage`.
    """
    message: Message = _decoded(kind, raw, "")
    return message


def _decoded(kind: Any, raw: Any, place: str) -> Any:
    if kind in AS_IT_IS:
        return _plain(kind, raw, place)
    origin, inner = _parts_of(kind)
    if origin in (Union, types.UnionType):
        return _any_of(inner, raw, place)
    if origin is not None and issubclass(origin, Mapping):
        _check(isinstance(raw, dict), place, "an object")
        return {_key(inner[0], name, place): _decoded(inner[1], one, f"{place}/{name}") for name, one in raw.items()}
    if origin is not None and issubclass(origin, Sequence):
        _check(isinstance(raw, list), place, "an array")
        return tuple(_decoded(inner[0], one, f"{place}/{position}") for position, one in enumerate(raw))
    return _object(kind, raw, place) if is_dataclass(kind) else _plain(kind, raw, place)


def _any_of(kinds: Sequence[Any], raw: Any, place: str) -> Any:
    """The first of the types that fits; of a text no array is made."""
    for kind in kinds:
        try:
            return _decoded(kind, raw, place)
        except BadMessage:
            continue
    raise BadMessage(place, " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds))


def _object(kind: Any, raw: Any, place: str) -> Any:
    _check(isinstance(raw, dict), place, "an object")
    given = {
        name: _decoded(_types_of(kind)[name], raw[name], f"{place}/{name}") for name in _names_of(kind) if name in raw
    }
    try:
        return kind(**given)
    except TypeError:
        raise BadMessage(place, f"{kind.__name__} with all of its fields") from None


def _plain(kind: Any, raw: Any, place: str) -> Any:
    name = kind.__name__
    try:
        if kind is type(None) or kind in (bool, int):
            _check(type(raw) is kind and (kind is not int or abs(raw) <= GREATEST_INTEGER), place, name)
            return raw
        if kind in (float, timedelta):
            _check(type(raw) in (int, float) and isfinite(raw), place, "a finite number")
            return float(raw) if kind is float else timedelta(seconds=raw)
        if issubclass(kind, Enum):
            return kind(raw)
        _check(isinstance(raw, str) and _is_storable(raw), place, "a text")
        return _moment(raw, place) if kind is datetime else _FROM_TEXT.get(kind, kind)(raw)
    except (ValueError, OverflowError) as error:
        raise BadMessage(place, name) from error


_FROM_TEXT: dict[Any, Any] = {time: time.fromisoformat}


def _moment(raw: str, place: str) -> datetime:
    at = datetime.fromisoformat(raw)
    _check(at.tzinfo is not None, place, "a moment with its offset from UTC")
    return at


def _key(kind: Any, name: str, place: str) -> Any:
    try:
        return kind(name)
    except ValueError:
        raise BadMessage(place, f"an object whose keys are {kind.__name__}") from None


def _is_storable(text: str) -> bool:
    """Whether databases can store the text: no zero character, and no lone surrogate."""
    return NOT_STORABLE.search(text) is None


def _check(holds: bool, place: str, expected: str) -> None:
    if not holds:
        raise BadMessage(place, expected)


@cache
def _parts_of(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
