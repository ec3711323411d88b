"""Keyset pagination: every page costs the same, and pages stay stable while rows are inserted."""

import re
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from django.core.exceptions import ValidationError as NoSuchValue
from django.db import DataError
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response


class NewestFirst(CursorPagination):
    """Newest first by primary key: ids are UUIDv7 or counters, so they grow with time."""

    ordering: str | tuple[str, ...] = "-pk"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, NoSuchValue, ValueError, DataError):  # an invented cursor, or that of another list
            if self.cursor_query_param not in request.query_params:
                raise
            self._refuse_cursor()

    def get_page_size(self, request: Request) -> int:
        """Page size from the query: an integer from 1 to the maximum. Another one, or an empty cursor, is refused."""
        if request.query_params.get(self.cursor_query_param) == "":
            self._refuse_cursor()
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text) or int(text) > self.max_page_size:
            words = f"Write a whole number from 1 to {self.max_page_size}; `next` leads to the next page."
            self._refuse(self.page_size_query_param, words)
        return int(text)

    def _refuse_cursor(self) -> NoReturn:
        text = "Send the value of `next` of the previous page, or leave it out for the first page."
        self._refuse(self.cursor_query_param, text)

    def _refuse(self, parameter: str, text: str) -> NoReturn:
        raise ValidationError({parameter: [text]})

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"next": self.next_cursor(), "results": data})

    def next_cursor(self) -> str | None:
        """The value to send as `cursor` for the next page; None at the end."""
        link = self.get_next_link()
        return parse_qs(urlsplit(link).query)[self.cursor_query_param][0] if link else None

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {
                "next": {
                    "type": ["string", "null"],
                    "description": "Send it as `cursor` to get the next page; null on the last page.",
                },
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        size = {"type": "integer", "minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        return [
            {
                "name": self.cursor_query_param,
                "in": "query",
                "description": "The value of `next` of the previous page.",
                "schema": {"type": "string", "minLength": 1},
            },
            {
                "name": self.page_size_query_param,
                "in": "query",
                "description": "Results per page.",
                "schema": size,
            },
        ]


class OldestFirst(NewestFirst):
    """Oldest first, for histories."""

    ordering = "pk"


class ByName(NewestFirst):
    ordering = "name"


class ByNameAndEngine(NewestFirst):
    """For rows of which several have a name; among those of one engine, the older first."""

    ordering = ("name", "engine_id", "pk")


class ByNumber(NewestFirst):
    """Highest number first."""

    ordering = "-number"
