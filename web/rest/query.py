"""Query parameters: checked as they are described, so that an empty value is one of text or refused."""

from typing import Any

from django.forms import CharField, ChoiceField, UUIDField
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.views import APIView

from web.rest.choices import not_one_of

EMPTY = "Give a value, or leave the parameter out."


class Flag(serializers.BooleanField):
    """Boolean parameter; the framework's takes also `1`, `yes`, `on` and others for true."""

    TRUE_VALUES = {"true", True}
    FALSE_VALUES = {"false", False}
    default_error_messages = {"invalid": "Write true or false."}


def query_of(request: Request, serializer_class: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """Validated query; raises `ValidationError`.

    The framework takes an empty value of a form for a missing one, but that of a plain map as it is.
    """
    query = serializer_class(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    validated: dict[str, Any] = query.validated_data
    return validated


class StrictFilters(DjangoFilterBackend):  # type: ignore[misc]  # the library has no types
    """Filters of a list, without empty values of those that are not text; pages ignore these, as forms send them."""

    def get_filterset(self, request: Request, queryset: Any, view: APIView) -> Any:
        filterset = super().get_filterset(request, queryset, view)
        for name, field in filterset.form.fields.items() if filterset else ():
            values = request.query_params.getlist(name)
            is_text = isinstance(field, CharField) and not isinstance(field, UUIDField)
            if not is_text and "" in values:
                raise ValidationError({name: [EMPTY]})
            if isinstance(field, ChoiceField):
                field.error_messages["invalid_choice"] = _refusal(field, values)
        return filterset


def _refusal(field: ChoiceField, values: list[str]) -> str:
    """Error message for the first invalid value, escaped because the field formats it with `%`."""
    choices: Any = field.choices  # of pairs; the stubs allow what makes them, too
    known = [str(choice) for choice, _ in choices if choice != ""]
    unknown = [value for value in values if value not in known]
    return not_one_of(unknown[0], known).replace("%", "%%") if unknown else ""
