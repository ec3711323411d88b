"""Answers that say which state they show, and hold only the fields that were asked for.

A single resource has a strong ETag: of its whole representation, whichever fields of it are sent. Who has seen that
state is told 304; who changes a resource may insist, by If-Match, that it is still in the state that they saw.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

Row = TypeVar("Row", bound=Model)

FIELDS = OpenApiParameter("fields", str, description="Only these fields, as `id,state`; default: all.")
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="An ETag: 304 if the resource is still in that state."
)
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="An ETag: 412 if the resource is in that state no more."
)


class Stale(APIException):
    """Somebody changed the resource after the caller had looked at it."""

    status_code = 412
    default_code = "stale"
    default_detail = "It has changed since you looked: get it again, and decide again."


def etag_of(whole: Mapping[str, Any]) -> str:
    """A strong ETag: two states of a resource have the same only if all that they show is the same."""
    shown = {name: value for name, value in whole.items() if name != "etag"}
    return f'"{hashlib.sha256(json.dumps(shown, cls=JSONEncoder, sort_keys=True).encode()).hexdigest()}"'


def single(request: Request, whole: Mapping[str, Any], status: int = 200) -> Response:
    """The answer that shows one resource: its ETag, 304 to who has it, and the fields that were asked for."""
    etag = etag_of(whole)
    if request.method not in SAFE_METHODS:
        return Response(whole, status=status, headers={"ETag": etag})
    wanted = fields_wanted(request, whole)
    seen = parse_etags(request.headers.get("If-None-Match", ""))
    if "*" in seen or etag in {tag.removeprefix("W/") for tag in seen}:
        return Response(status=304, headers={"ETag": etag})
    return Response({name: whole[name] for name in whole if name in wanted}, status=status, headers={"ETag": etag})


def refuse_stale(request: Request, whole: Callable[[], Mapping[str, Any]]) -> None:
    """`Stale` unless the caller has seen this state, or did not say what they have seen; while it is locked."""
    if "If-Match" not in request.headers:
        return
    seen = parse_etags(request.headers["If-Match"])
    if "*" not in seen and etag_of(whole()) not in seen:
        raise Stale


def fields_wanted(request: Request, known: Mapping[str, Any]) -> set[str]:
    """The names in `?fields=`; all, if there are none. A misspelt one is refused, for it would be missed in silence."""
    text = request.query_params.get("fields")
    if text is None:
        return set(known)
    wanted = [name.strip() for name in text.split(",")]
    if unknown := [name for name in wanted if name not in known]:
        raise ValidationError({"fields": [f"There is no field {unknown[0]!r}; there are {', '.join(known)}."]})
    return set(wanted)


class ShowOne(mixins.RetrieveModelMixin, GenericAPIView[Row]):
    """`retrieve` with all of that."""

    @extend_schema(parameters=[FIELDS, IF_NONE_MATCH])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return single(request, self.get_serializer(self.get_object()).data)


class ShowMany(mixins.ListModelMixin, GenericAPIView[Row]):
    """`list` with the fields that were asked for; the others are not even computed."""

    @extend_schema(parameters=[FIELDS])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        serializer: Any = self.get_serializer(many=True, instance=[])
        wanted = fields_wanted(request, serializer.child.fields)
        serializer.instance = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        for name in set(serializer.child.fields) - wanted:
            serializer.child.fields.pop(name)
        return self.get_paginated_response(serializer.data)
