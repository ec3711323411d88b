"""Fields of the administration's forms: maps as lines of `key=value`, memory as `512GiB`."""

import json
import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput

MIB_PER = {"mib": 1, "mb": 1, "m": 1, "gib": 1024, "gb": 1024, "g": 1024, "tib": 1024**2, "tb": 1024**2, "t": 1024**2}
LARGEST_MIB = 2**31 - 1


class KeyValueField(forms.JSONField):
    """Map as one `key=value` per line; JSON is read, too. A value that is a number or true in JSON is one here."""

    widget = forms.Textarea(attrs={"rows": 4, "cols": 60, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        if not isinstance(value, str) or value.strip()[:1] in ("", "{", "["):
            return super().to_python(value)
        return dict(_pair(line) for line in value.splitlines() if line.strip())

    def prepare_value(self, value: Any) -> Any:
        if value is None:
            return ""
        return format_map(value) if isinstance(value, dict) else super().prepare_value(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Show the typed text again, unchanged."""
        return InvalidJSONInput(data) if isinstance(data, str) else super().bound_data(data, initial)


def format_map(found: dict[str, Any], *, between: str = "\n") -> str:
    """The map as text, sorted by name, because PostgreSQL does not keep the order."""
    return between.join(f"{key}={_text(value)}" for key, value in sorted(found.items()))


def _pair(line: str) -> tuple[str, Any]:
    key, equals, value = line.partition("=")
    if not (key.strip() and equals):
        raise ValidationError(
            "Write one key=value per line, such as rack=b2; this is none: %(line)s", params={"line": line}
        )
    return key.strip(), _value(value.strip())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(value: Any) -> str:
    """A text as it is, unless it would be read as something else."""
    return value if isinstance(value, str) and _value(value) == value else json.dumps(value)


class MemoryField(forms.CharField):
    """Memory as `512GiB`, held in MiB. A number without a unit could be MiB as well as GiB."""

    def prepare_value(self, value: Any) -> Any:
        return memory_in_words(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        text = str(value if value is not None else "").strip()
        if not text:
            return None
        parts = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", text)
        if parts is None or (parts[2] and parts[2].lower() not in MIB_PER):
            raise ValidationError("Write a number with a unit (MiB, GiB, TiB), such as 512GiB.")
        if not parts[2] and float(parts[1]):
            raise ValidationError(f"Add the unit: {text}GiB or {text}MiB.")
        mib = round(float(parts[1]) * MIB_PER.get(parts[2].lower(), 1))
        if not 0 < mib <= LARGEST_MIB:
            raise ValidationError("Memory must be more than zero, and less than 2048TiB.")
        return mib

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(initial != self.to_python(data))
        except ValidationError:
            return True


def memory_in_words(mib: int) -> str:
    """In the largest unit that divides it, so that it is read back as the same."""
    for unit, size in (("TiB", 1024**2), ("GiB", 1024)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}MiB"
