"""Indices of a job array: `1,3,7-10:2%2` as sbatch writes them, or an object with the first and the last index."""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs_app.models.job import LARGEST_ARRAY
from web.rest.bodies import Strict
from web.rest.choices import MOST_CHARACTERS, shortened

LARGEST_INDEX = 2**31 - 1
EXAMPLES = "0-99, 0-99%10 for ten at a time, 1,3,5 or 0-20:5 for every fifth"
PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)

Array = dict[str, Any]
"""Columns of `JobArray`."""


class IndexRange(Strict):
    """First and last index of an array, both included."""

    start = serializers.IntegerField(min_value=0, max_value=LARGEST_INDEX, default=0)
    end = serializers.IntegerField(min_value=0, max_value=LARGEST_INDEX)
    at_a_time = serializers.IntegerField(
        min_value=1, max_value=LARGEST_INDEX, required=False, allow_null=True, default=None
    )


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string", "pattern": r"^[0-9,:%-]+$", "description": f"{EXAMPLES}."},
            {
                "type": "object",
                "properties": {
                    "start": {"type": "integer", "minimum": 0, "maximum": LARGEST_INDEX, "default": 0},
                    "end": {"type": "integer", "minimum": 0, "maximum": LARGEST_INDEX},
                    "at_a_time": {"type": ["integer", "null"], "minimum": 1, "maximum": LARGEST_INDEX},
                },
                "required": ["end"],
                "additionalProperties": False,
            },
        ]
    }
)
class ArrayIndices(serializers.Field[Array, Any, Any, Any]):
    """Indices of an array, as a text or an object; at most 10,000, none further from the first than that."""

    def to_internal_value(self, data: Any) -> Array:
        if isinstance(data, Mapping):
            return _checked(array := _range_of(data), f"{array['start']}-{array['end']}")
        if type(data) is int:  # YAML reads `array: 3` as a number
            data = str(data)
        if not isinstance(data, str):
            raise serializers.ValidationError(f"Write the indices, e.g. {EXAMPLES}.")
        return _checked(_columns_of(data.strip()), data.strip())


def array_text(array: Mapping[str, Any]) -> str | dict[str, Any]:
    """The indices as a spec has them: an object, or a text where some between the first and the last are left out."""
    if not array.get("indices"):
        return {name: array[name] for name in ("start", "end", "at_a_time")}
    listed = ",".join(map(str, array["indices"]))
    return f"{listed}%{array['at_a_time']}" if array["at_a_time"] else listed


def _range_of(data: Mapping[Any, Any]) -> Array:
    serializer = IndexRange(data=data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _columns_of(text: str) -> Array:
    listed, is_limited, at_a_time = text.partition("%")
    if is_limited and not re.fullmatch(r"0*[1-9][0-9]{0,8}", at_a_time, re.ASCII):
        raise serializers.ValidationError(_unreadable(text))
    ranges = [_range(part, text) for part in listed.split(",")]
    if sum(map(len, ranges)) > LARGEST_ARRAY:
        raise serializers.ValidationError(_too_many(text, sum(map(len, ranges))))
    indices = sorted(set(chain(*ranges)))
    start, end = indices[0], indices[-1]
    is_whole = len(indices) == end - start + 1
    return {
        "start": start,
        "end": end,
        "indices": None if is_whole else indices,
        "at_a_time": int(at_a_time) if is_limited else None,
    }


def _range(part: str, text: str) -> range:
    match = PART.fullmatch(part)
    if match is None or (match[3] is not None and int(match[3]) == 0):
        raise serializers.ValidationError(_unreadable(text))
    first, last = int(match[1]), int(match[2] or match[1])
    if max(first, last) > LARGEST_INDEX:
        raise serializers.ValidationError(f"{part}: an index is at most {LARGEST_INDEX:,}.")
    if last < first:
        raise serializers.ValidationError(_backwards(part))
    return range(first, last + 1, int(match[3] or 1))


def _unreadable(text: str) -> str:
    return f"{shortened(text)} is no list of indices: write {EXAMPLES}."


def _checked(array: Array, text: str) -> Array:
    """The array; raises for the one limit that it breaks."""
    span = array["end"] - array["start"] + 1
    if span < 1:
        raise serializers.ValidationError(_backwards(text))
    if span <= LARGEST_ARRAY:
        return array
    if not array.get("indices"):
        raise serializers.ValidationError(_too_many(text, span))
    most = f"the last index may be at most {LARGEST_ARRAY - 1:,} above the first"
    raise serializers.ValidationError(f"{_short(text)}: {most}, which is {array['start']}.")


def _backwards(text: str) -> str:
    return f"{text}: the last index must not be less than the first."


def _too_many(text: str, tasks: int) -> str:
    return f"{_short(text)}: an array has at most {LARGEST_ARRAY:,} tasks, these are {tasks:,}."


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
