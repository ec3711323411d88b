"""Declaration of a recipe's parameters, as it is written in a file and over REST."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs_app.errors import InvalidSpec
from jobs_app.recipes.parameters import Parameter, WrongValue, type_of
from jobs_app.submission.fields import PlainText
from web.rest.bodies import DictOf, ListOf, Strict
from web.rest.choices import Choice
from web.rest.errors import faults_of

MOST_PARAMETERS = 50
MOST_CHOICES = 100
TYPES = {"text": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
TYPE_CHOICES = list(TYPES.items())
ANY_VALUE: dict[str, Any] = {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}


@extend_schema_field(ANY_VALUE)
class AnyValue(serializers.Field[Any, Any, Any, Any]):
    """A text, a number, true or false."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str | int | float | bool):
            raise serializers.ValidationError("Write a text, a number, or true or false.")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class ParameterSpec(Strict):
    """A parameter of a recipe. Its type is that of its default unless it is given."""

    type = Choice(tuple(TYPES.items()), required=False)
    default = AnyValue(required=False, help_text="Without one, the value must be given with each submission.")
    description = PlainText(required=False, max_length=200, allow_blank=True)
    choices = ListOf(
        child=AnyValue(), required=False, max_length=MOST_CHOICES, help_text="The values that it may have."
    )

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Its row, of which the name is not known here; a plain value is the default."""
        given = super().to_internal_value(data if isinstance(data, Mapping) else {"default": data})
        kind = given.get("type") or type_of(
            given["default"] if "default" in given else (given.get("choices") or [""])[0]
        )
        bare = Parameter(name="", type=kind, description=given.get("description", ""))
        choices = [_read(bare, "choices", one) for one in given.get("choices", ())]
        full = Parameter(name="", type=kind, description=bare.description, choices=tuple(choices))
        default = _read(full, "default", given["default"]) if "default" in given else None
        return full.as_row() | {"default": default}


def _read(parameter: Parameter, field: str, value: Any) -> Any:
    try:
        return parameter.read(value)
    except WrongValue as error:
        raise serializers.ValidationError({field: [str(error)]}) from None


class ParameterSpecs(DictOf):
    """Parameters by name, in the order in which they are asked for."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=ParameterSpec(), most=MOST_PARAMETERS, **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        return [row | {"name": name} for name, row in super().to_internal_value(data).items()]


def read_parameters(data: Any) -> list[dict[str, Any]]:
    """Rows of the parameters; raises `InvalidSpec` with every fault below `/parameters`."""
    try:
        rows: list[dict[str, Any]] = ParameterSpecs().run_validation(data)
    except serializers.ValidationError as error:
        raise InvalidSpec(faults_of(error.detail, "/parameters")) from None
    return rows


def written_parameters(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The parameters as they are written in a file: only the default where that says everything."""
    return {row["name"]: _written(row) for row in rows}


def _written(row: Mapping[str, Any]) -> Any:
    told = {name: row[name] for name in ("default", "description", "choices") if row[name] not in (None, "", [])}
    if type_of(row["default"] if row["default"] is not None else "") != row["type"]:
        told["type"] = row["type"]
    return told["default"] if told.keys() == {"default"} else told
