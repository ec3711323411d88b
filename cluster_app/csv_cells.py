"""Cells of the CSV file of nodes: each is read strictly, and a fault says what to write instead."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, cast

from import_export.widgets import (
    BooleanWidget,
    CharWidget,
    DecimalWidget,
    ForeignKeyWidget,
    IntegerWidget,
    JSONWidget,
    TimeWidget,
)

from cluster_app.models import LOCAL_ENGINE, Engine, GpuType

YES, NO = ("1", "true", "yes"), ("0", "false", "no", "")


class RowByName(ForeignKeyWidget):  # type: ignore[misc]  # the library has no types
    """Foreign key by name; the other table is read once per file."""

    @cached_property
    def by_name(self) -> dict[str, Any]:
        return {row.name: row for row in self.model._default_manager.all()}


class KnownGpuType(RowByName):
    """GPU type by name; an unknown name is refused with the list of known ones."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> GpuType:
        if kind := self.by_name.get(str(value).strip()):
            return cast("GpuType", kind)
        known = ", ".join(self.by_name) or "none yet; add it first"
        raise ValueError(f"Unknown GPU type {str(value)!r}. Known types: {known}.")


class KnownEngine(RowByName):
    """Engine by name; the local one where the cell is empty."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> Engine:
        name = str(value or "").strip() or LOCAL_ENGINE
        if engine := self.by_name.get(name):
            return cast("Engine", engine)
        raise ValueError(f"Unknown engine {name!r}. Known engines: {', '.join(self.by_name)}.")


class WholeNumber(IntegerWidget):  # type: ignore[misc]
    """Strict whole number: the library would read 2.7 as 2."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> int:
        text = str(value).strip()
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ValueError(f"Write a whole number, not {text!r}.")
        return int(text)


class WholeNumberOrUnknown(IntegerWidget):  # type: ignore[misc]
    """The same, or an empty cell."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> int | None:
        return WholeNumber().clean(value) if str(value or "").strip() else None


class WholeNumberOrZero(IntegerWidget):  # type: ignore[misc]
    """A whole number; 0 for an empty cell."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> int:
        return WholeNumber().clean(value) if str(value or "").strip() else 0


class OneOf(CharWidget):  # type: ignore[misc]
    """One of these words; an empty cell is the first."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.words = words

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> str:
        text = str(value or "").strip().lower() or self.words[0]
        if text not in self.words:
            raise ValueError(f"Write {', '.join(self.words[:-1])} or {self.words[-1]}, not {text!r}.")
        return text


class PriceOrNone(DecimalWidget):  # type: ignore[misc]
    """A price, or an empty cell: that of the GPU type."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> Decimal | None:
        text = str(value or "").strip()
        try:
            price = Decimal(text) if text else None
        except InvalidOperation:
            price = Decimal("NaN")
        if price is not None and not price.is_finite():
            raise ValueError(f"Write a price per GPU-hour, as 1.25, or nothing for that of the GPU type; not {text!r}.")
        return price


class TimeOfDayOrNone(TimeWidget):  # type: ignore[misc]
    """A time as 22:00, or an empty cell."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> time | None:
        text = str(value or "").strip()
        try:
            return datetime.strptime(text, "%H:%M").time() if text else None  # noqa: DTZ007 - a time of day
        except ValueError as error:
            raise ValueError(f"Write a time of day, as 22:00, or nothing for all hours; not {text!r}.") from error

    def render(self, value: time | None, obj: Any = None, **kwargs: Any) -> str:
        return f"{value:%H:%M}" if value else ""


class TimeZone(CharWidget):  # type: ignore[misc]
    """Name of a time zone; UTC for an empty cell. The model knows the names."""

    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> str:
        return str(value or "").strip() or "UTC"


class YesOrNo(BooleanWidget):  # type: ignore[misc]
    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> bool:
        text = str(value).strip().lower()
        if text not in (*YES, *NO):
            raise ValueError(f"Write yes or no, not {text!r}.")
        return text in YES

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        return "yes" if value else "no"


class Labels(JSONWidget):  # type: ignore[misc]
    def clean(self, value: Any, row: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        try:
            labels = super().clean(value) or {}
        except ValueError as error:
            raise ValueError('Write JSON, e.g. {"rack": "b2"}.') from error
        if not isinstance(labels, dict):
            raise ValueError('Write a map, e.g. {"rack": "b2"}.')
        return labels

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        return super().render(value, obj, **kwargs) or ""
