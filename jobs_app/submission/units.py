"""Quantities with units, `16GiB` or `48h`, as fields that hold integers of MiB or seconds."""

import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

MIB_PER = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
SECONDS_PER = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LARGEST = 2**31 - 1


class Quantity(serializers.Field[int, Any, str, Any]):
    """Number with a unit; a number without one is in `bare_unit`."""

    units: dict[str, int]
    bare_unit: str
    example: str

    def to_internal_value(self, data: Any) -> int:
        text = str(data).strip() if isinstance(data, str | int | float) and not isinstance(data, bool) else ""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
        if not match or (match[2] or self.bare_unit) not in self.units:
            raise serializers.ValidationError(
                f"Write a number with a unit ({', '.join(self.units)}), e.g. {self.example}."
            )
        amount = float(match[1]) * self.units[match[2] or self.bare_unit]
        value = round(min(amount, LARGEST + 1))  # a number of 400 digits is infinity, which has no integer
        if not 0 < value <= LARGEST:
            raise serializers.ValidationError(f"Must be more than zero and at most {LARGEST:,} {self.bare_unit}.")
        return value

    def to_representation(self, value: int) -> str:
        """In the largest unit that divides the value, so that a round trip keeps the text."""
        unit = max((name for name, size in self.units.items() if value % size == 0), key=self.units.__getitem__)
        return f"{value // self.units[unit]}{unit}"


@extend_schema_field({"type": "string", "examples": ["16GiB", "512MiB"]})
class Memory(Quantity):
    units, bare_unit, example = MIB_PER, "MiB", "16GiB"


@extend_schema_field({"type": "string", "examples": ["48h", "90m", "3600"]})
class Seconds(Quantity):
    units, bare_unit, example = SECONDS_PER, "s", "48h"
