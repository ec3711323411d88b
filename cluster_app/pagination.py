"""Keyset pages: as fast on the last page as on the first, and stable while rows arrive."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from rest_framework.pagination import CursorPagination
from rest_framework.response import Response


class NewestFirst(CursorPagination):
    """Newest first by primary key: ids are UUIDv7 or counters, so they grow with time."""

    ordering = "-pk"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

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


class ByName(NewestFirst):
    ordering = "name"


class ByNumber(NewestFirst):
    """Latest first."""

    ordering = "-number"
