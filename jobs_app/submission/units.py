"""Quantities with units, `16GiB` or `48h`, as fields that hold integers of MiB or seconds."""

import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

MIB_PER = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
SECONDS_PER = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SPELLINGS_OF_MEMORY = {"m": "MiB", "mb": "MiB", "g": "GiB", "gb": "GiB", "t": "TiB", "tb": "TiB"}
"""As in Slurm a prefix is a power of 1,024 however it is spelt."""
SPELLINGS_OF_TIME = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
CLOCK = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?")
"""Slurm's `days-hours:minutes:seconds`, without days `hours:minutes:seconds` or `minutes:seconds`."""
LARGEST = 2**31 - 1
MOST_CHARACTERS = 400
"""Of a quantity; a number of 400 digits is still one, which is too large."""


class Quantity(serializers.Field[int, Any, str, Any]):
    """Number with a unit."""

    units: dict[str, int]
    spellings: dict[str, str]
    counted_in: str
    examples: str

    def to_internal_value(self, data: Any) -> int:
        text = str(data).strip() if isinstance(data, str | int | float) and not isinstance(data, bool) else ""
        if (amount := self._amount(text)) is None:
            raise serializers.ValidationError(self._remedy(text))
        value = round(min(amount, LARGEST + 1))  # a number of 400 digits is infinity, which has no integer
        if not 0 < value <= LARGEST:
            raise serializers.ValidationError(f"Must be more than zero and at most {LARGEST:,} {self.counted_in}.")
        return value

    def to_representation(self, value: int) -> str:
        """In the largest unit that divides the value, so that a round trip keeps the text."""
        unit = max((name for name, size in self.units.items() if value % size == 0), key=self.units.__getitem__)
        return f"{value // self.units[unit]}{unit}"

    def _amount(self, text: str) -> float | None:
        """The sum of its parts, of `1h30m` two; None: not a quantity."""
        parts = list(PART.finditer(text)) if len(text) <= MOST_CHARACTERS else []
        sizes = [self._size(part[2]) for part in parts]
        if not parts or not all(sizes) or "".join(part[0] for part in parts) != text:
            return None
        return sum(float(part[1]) * size for part, size in zip(parts, sizes, strict=True))

    def _size(self, unit: str) -> int:
        """Zero: no such unit."""
        by_any_case = {name.lower(): size for name, size in self.units.items()}
        return by_any_case.get(self.spellings.get(unit.lower(), unit).lower(), 0)

    def _remedy(self, text: str) -> str:
        return f"Write a number with a unit ({', '.join(self.units)}), e.g. {self.examples}."


@extend_schema_field({"type": "string", "examples": ["16GiB", "512MiB"]})
class Memory(Quantity):
    """Memory in MiB: `16GiB`, or as Slurm writes it `16G`. A number without a unit could be MiB as well as GiB."""

    units, spellings, counted_in, examples = MIB_PER, SPELLINGS_OF_MEMORY, "MiB", "16GiB"

    def _remedy(self, text: str) -> str:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return f"Add the unit: {text[:20]}GiB or {text[:20]}MiB."
        return super()._remedy(text)


@extend_schema_field({"type": "string", "examples": ["48h", "90m", "2:00:00", "1-12:00:00"]})
class Seconds(Quantity):
    """Time in seconds: `48h`, `2 days`, `1h30m`, or as Slurm writes it `2:00:00`, `1-12` or `1-12:00:00`."""

    units, spellings, counted_in = SECONDS_PER, SPELLINGS_OF_TIME, "seconds"
    examples = "48h, 2:00:00 or 1-12:00:00"

    def _remedy(self, text: str) -> str:
        """A number alone would be minutes for those who come from Slurm, and seconds for others."""
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return f"Add the unit: {text[:20]}m are minutes, {text[:20]}h hours, {text[:20]}s seconds."
        return super()._remedy(text)

    def _amount(self, text: str) -> float | None:
        return _by_clock(text) if re.search(r"[-:]", text) else super()._amount(text)


def _by_clock(text: str) -> float | None:
    """Seconds of a time with colons or days, as `sbatch --time` reads it; minutes and seconds are below 60."""
    match = CLOCK.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    given = [int(part) for part in rest if part is not None]
    if any(part >= 60 for part in given[1:]):
        return None
    if days is None and len(given) == 2:
        given = [0, *given]  # minutes:seconds
    hours, minutes, seconds = [*given, 0, 0][:3]
    return float(int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds)
