"""Keyset pages: as fast on the last page as on the first, and stable while rows arrive."""

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

    ordering = "-pk"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, NoSuchValue, ValueError, DataError):  # one that was made up, or that is of another list
            if self.cursor_query_param not in request.query_params:
                raise
            self._refuse(self.cursor_query_param, "Send what `next` of the page before says; leave it out to begin.")

    def get_page_size(self, request: Request) -> int:
        """More than a page holds gives a full page; what is no number is refused."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text):
            self._refuse(self.page_size_query_param, f"Write a whole number from 1 to {self.max_page_size}.")
        return min(int(text), self.max_page_size)

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
                "next": {"type": ["string", "null"], "description": "Send it as `cursor` to get the next page."},
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        size = {"type": "integer", "minimum": 1, "default": self.page_size}
        return [
            {
                "name": self.cursor_query_param,
                "in": "query",
                "description": "What `next` of the page before says.",
                "schema": {"type": "string"},
            },
            {
                "name": self.page_size_query_param,
                "in": "query",
                "description": f"Results per page; more than {self.max_page_size} gives {self.max_page_size}.",
                "schema": size,
            },
        ]


class OldestFirst(NewestFirst):
    """Histories are read in the order in which they happened."""

    ordering = "pk"


class ByName(NewestFirst):
    ordering = "name"


class ByNumber(NewestFirst):
    """Latest first."""

    ordering = "-number"
