"""Representations of one resource or of a page of them, with sparse fieldsets (`?fields=`) and ETags."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db.models import Model
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from web.rest.choices import guess_of
from web.rest.etags import IF_NONE_MATCH, etag_of, is_unchanged

Row = TypeVar("Row", bound=Model)

FIELDS = OpenApiParameter(
    "fields",
    {"type": "string", "minLength": 1},
    description="Send only these fields, e.g. `id,state`. Default: all fields.",
)


def single(request: Request, whole: Mapping[str, Any], status: int = 200) -> Response:
    """Response with one resource: its ETag, 304 if the caller has this state, and only the requested fields."""
    etag = etag_of(whole)
    if request.method not in SAFE_METHODS:
        return Response(whole, status=status, headers={"ETag": etag})
    wanted = fields_wanted(request, whole)
    if is_unchanged(request, etag):
        return Response(status=304, headers={"ETag": etag})
    return Response({name: whole[name] for name in whole if name in wanted}, status=status, headers={"ETag": etag})


def fields_wanted(request: Request, known: Mapping[str, Any]) -> set[str]:
    """Names in `?fields=`, all if it is absent. An unknown name is an error: it must not be ignored silently."""
    text = request.query_params.get("fields")
    if text is None:
        return set(known)
    wanted = [name.strip() for name in text.split(",")]
    if unknown := [name for name in wanted if name not in known]:
        text = f"Unknown field {unknown[0]!r}.{guess_of(unknown[0], known)} The fields are: {', '.join(known)}."
        raise ValidationError({"fields": [text]})
    return set(wanted)


class ShowOne(mixins.RetrieveModelMixin, GenericAPIView[Row]):
    """`retrieve` with an ETag and sparse fieldsets."""

    @extend_schema(parameters=[FIELDS, IF_NONE_MATCH])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return single(request, self.get_serializer(self.get_object()).data)


class ShowMany(mixins.ListModelMixin, GenericAPIView[Row]):
    """`list` with sparse fieldsets: fields that were not requested are not computed."""

    @extend_schema(parameters=[FIELDS])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        serializer: Any = self.get_serializer(many=True, instance=[])
        wanted = fields_wanted(request, serializer.child.fields)
        serializer.instance = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        for name in set(serializer.child.fields) - wanted:
            serializer.child.fields.pop(name)
        return self.get_paginated_response(serializer.data)
