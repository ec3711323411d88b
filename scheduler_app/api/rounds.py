"""REST: rounds and their decisions."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.permissions import NotForJobs, jobs_seen_by
from rest.pagination import ByNumber
from rest.representation import FIELDS, ShowMany, ShowOne, fields_wanted
from scheduler_app.api.serializers import DecisionOnJob, RoundAnswer, RoundInFull
from scheduler_app.explain.decisions import decisions_of
from scheduler_app.models import Round
from scheduler_app.round.archive import archive_of

AT_ONCE = 1000
"""Jobs per database query."""

Decision = dict[str, Any]


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
            context["decisions"] = [decision for _, decision in self._seen(0)]
        return context

    @extend_schema(responses=DecisionOnJob(many=True), parameters=[FIELDS])
    @action(detail=True, methods=["get"])
    def decisions(self, request: Request, number: str) -> Response:
        """List the decisions of a round. In order of submission; only jobs that the caller may see."""
        self.get_object()
        wanted = fields_wanted(request, DecisionOnJob().fields)
        limit = ByNumber().get_page_size(request)
        page = list(islice(self._seen(_position(request)), limit + 1))
        more = str(page[limit][0]) if len(page) > limit else None
        results = [{name: given[name] for name in given if name in wanted} for _, given in page[:limit]]
        return Response({"next": more, "results": results})

    def _seen(self, start: int) -> Iterator[tuple[int, Decision]]:
        """Decisions on visible jobs from a position on, each with its position."""
        archived = archive_of(Round(number=int(self.kwargs["number"])))
        decisions = list(decisions_of(archived)) if archived else []
        for first in range(start, len(decisions), AT_ONCE):
            some = decisions[first : first + AT_ONCE]
            seen = self._jobs_seen([decision["job"] for decision in some])
            yield from ((first + n, given) for n, given in enumerate(some) if given["job"] in seen)

    def _jobs_seen(self, ids: Sequence[str]) -> set[str]:
        jobs = jobs_seen_by(self.request).filter(pk__in=ids)
        return {str(pk) for pk in jobs.values_list("pk", flat=True)}


def _position(request: Request) -> int:
    """Cursor of the list: a position in the archive, which never changes."""
    text = request.query_params.get("cursor", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationError({"cursor": ["Send what `next` of the page before says; leave it out to begin."]})
    return int(text)
