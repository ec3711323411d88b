"""The fields of a job's spec: what each takes, and what it says of what it does not take."""

import re
from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

MOST_GPUS = 100_000
LARGEST_BATCH = 2**31 - 1
LARGEST_RATE = 1e12
LEAST_RATE = 1e-6
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
MOST_RATES = 100
"""GPU types, and sizes of gangs for each."""
MOST_TAGS = 100


class Strict(serializers.Serializer[Any]):
    """Unknown fields are errors: a misspelt field must not be ignored in silence."""

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
        return serializers.ErrorDetail(f"There is no field {name!r}; there are {', '.join(self.fields)}.", "unknown")


def is_text(value: Any) -> bool:
    """Without NUL and halves of surrogate pairs, which neither a process nor every database takes."""
    return isinstance(value, str) and not re.search(r"[\0\ud800-\udfff]", value)


class PlainText(serializers.CharField):
    """Printable on one line: it is shown in tables and terminals."""

    def to_internal_value(self, data: Any) -> str:
        text = str(super().to_internal_value(data))
        if not text.isprintable():
            raise serializers.ValidationError("Use printable characters only, on one line.")
        return text


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
class Command(serializers.Field[Any, Any, Any, Any]):
    """A string for the shell, or a list that is executed as it is."""

    def to_internal_value(self, data: Any) -> str | list[str]:
        parts = data if isinstance(data, list) else [data]
        if not parts or not all(is_text(part) for part in parts) or not parts[0].strip():
            raise serializers.ValidationError("Write a command line, or a list of a program and its arguments.")
        return data  # type: ignore[no-any-return]


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 1},
            {
                "type": "object",
                "properties": {"min": {"type": "integer", "minimum": 1}, "max": {"type": "integer", "minimum": 1}},
                "required": ["min", "max"],
                "additionalProperties": False,
            },
        ]
    }
)
class Gpus(serializers.Field[dict[str, int], Any, Any, Any]):
    """4, or {min: 1, max: 16}: elastic, in sizes of min, doubled as often as that fits, and max."""

    def to_internal_value(self, data: Any) -> dict[str, int]:
        asked = dict(data) if isinstance(data, Mapping) else {"min": data, "max": data}
        if set(asked) != {"min", "max"} or not all(type(value) is int for value in asked.values()):
            raise serializers.ValidationError("Write a whole number of GPUs, or {min: 1, max: 16}.")
        least, most = asked["min"], asked["max"]
        if not 1 <= least <= most <= MOST_GPUS:
            raise serializers.ValidationError(f"Must be from 1 to {MOST_GPUS:,}, the least before the most.")
        return {"gpus_min": least, "gpus_max": most}


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [{"type": "number"}, {"type": "object", "additionalProperties": {"type": "number"}}]
        },
    }
)
class Rates(serializers.Field[dict[str, Any], Any, Any, Any]):
    """{a100: 24.1, v100: {1: 10.2, 2: 19.0}}: steps/s of the whole job."""

    def to_internal_value(self, data: Any) -> dict[str, dict[str, float]]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Write a map from GPU type to steps/s, as {a100: 24.1}.")
        if len(data) > MOST_RATES:
            raise serializers.ValidationError(f"Write rates for at most {MOST_RATES} GPU types.")
        by_kind = {str(kind): self._by_gpus(value) for kind, value in data.items()}
        faulty = [kind for kind, by_gpus in by_kind.items() if not (is_text(kind) and self._are_rates(by_gpus))]
        if faulty:
            text = f"Write steps/s from {LEAST_RATE:g} to {LARGEST_RATE:g}, or up to {MOST_RATES} of {{GPUs: steps/s}}."
            raise serializers.ValidationError({kind: [text] for kind in faulty})
        return {kind: {str(gpus): float(rate) for gpus, rate in by.items()} for kind, by in by_kind.items()}

    def _by_gpus(self, value: Any) -> Mapping[Any, Any]:
        """A bare number stands for the least gang, written as "" until the gang is known."""
        return value if isinstance(value, Mapping) else {"": value}

    def _are_rates(self, by_gpus: Mapping[Any, Any]) -> bool:
        return len(by_gpus) <= MOST_RATES and all(
            type(rate) in (int, float)
            and LEAST_RATE <= rate <= LARGEST_RATE
            and re.fullmatch(r"([1-9]\d{0,5})?", str(gpus))
            for gpus, rate in by_gpus.items()
        )


class Number(serializers.FloatField):
    """A finite one: "nan" is a float to Python, smaller and larger than nothing."""

    def to_internal_value(self, data: Any) -> float:
        number = super().to_internal_value(data)
        if not isfinite(number):
            raise serializers.ValidationError("Write a finite number.")
        return number


class TimeToCome(serializers.DateTimeField):
    """What should be done by then cannot be done by yesterday."""

    def to_internal_value(self, value: Any) -> datetime:
        at = super().to_internal_value(value)
        if at <= timezone.now():
            raise serializers.ValidationError("That is over already: name a time to come, or leave it out.")
        return at


class JobWeight(Number):
    """Share within the team; what the team allows is another question."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=LEAST_WEIGHT, max_value=MOST_WEIGHT, **kwargs)


class Tags(serializers.DictField):
    """{project: imagenet}: names without '=', which parts them from their values in a filter."""

    child = PlainText(max_length=100, allow_blank=True)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        tags: dict[str, str] = super().to_internal_value(data)
        if len(tags) > MOST_TAGS:
            raise serializers.ValidationError(f"A job has at most {MOST_TAGS} tags.")
        faulty = [name for name in tags if not (0 < len(name) <= 100 and name.isprintable()) or "=" in name]
        if faulty:
            text = "Name a tag by 1 to 100 printable characters without '='."
            raise serializers.ValidationError({name: [text] for name in faulty})
        return tags
