"""REST: rounds and their decisions."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from insight_app.explain.decisions import decisions_of, rows_seen
from jobs_app.permissions import NotForJobs, jobs_seen_by
from scheduler_app.models import Round
from scheduler_app.round.archive import Archived, archive_of
from web.api.serializers import DecisionOnJob, RoundAnswer, RoundInFull
from web.rest.pagination import ByNumber
from web.rest.representation import FIELDS, ShowMany, ShowOne, fields_wanted


@extend_schema_view(
    list=extend_schema(summary="List rounds"), retrieve=extend_schema(summary="Get a round with its decisions")
)
class RoundViewSet(ShowMany[Round], ShowOne[Round], viewsets.GenericViewSet[Round]):
    """Scheduling rounds, newest first. A single round includes its decisions on jobs that the caller may see."""

    queryset = Round.objects.defer("archive")
    permission_classes = (NotForJobs,)
    pagination_class = ByNumber
    lookup_field = "number"
    lookup_value_regex = r"\d{1,18}"

    def get_serializer_class(self) -> type[RoundAnswer]:
        return RoundAnswer if self.action == "list" else RoundInFull

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if self.action == "retrieve" and "number" in self.kwargs:
            archived = self._archived()
            context["decisions"] = decisions_of(archived, list(self._seen(archived, 0))) if archived else []
        return context

    @extend_schema(responses=DecisionOnJob(many=True), parameters=[FIELDS])
    @action(detail=True, methods=["get"])
    def decisions(self, request: Request, number: str) -> Response:
        """List the decisions of a round. In order of submission; only jobs that the caller may see."""
        self.get_object()
        wanted = fields_wanted(request, DecisionOnJob().fields)
        limit, start, archived = ByNumber().get_page_size(request), _position(request), self._archived()
        rows = list(islice(self._seen(archived, start), limit + 1)) if archived else []
        more = str(rows[limit]) if len(rows) > limit else None
        given = decisions_of(archived, rows[:limit]) if archived else []
        return Response({"next": more, "results": [{name: it[name] for name in it if name in wanted} for it in given]})

    def _archived(self) -> Archived | None:
        return archive_of(Round(number=int(self.kwargs["number"])))

    def _seen(self, archived: Archived, start: int) -> Iterator[int]:
        """Rows of visible jobs from a position on."""
        return rows_seen(archived, jobs_seen_by(self.request), range(start, len(archived.snapshot.jobs)))


def _position(request: Request) -> int:
    """Cursor of the list: a position in the archive, which never changes."""
    text = request.query_params.get("cursor", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationError({"cursor": ["Send what `next` of the page before says; leave it out to begin."]})
    return int(text)
