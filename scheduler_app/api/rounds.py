"""Rounds over REST."""

from typing import Any

from rest_framework import viewsets

from cluster_app.pagination import ByNumber
from jobs_app.api import jobs_seen_by
from jobs_app.permissions import NotForJobs
from scheduler_app.looking import decisions_of, opened
from scheduler_app.models import Round
from scheduler_app.serializers import RoundAnswer, RoundInFull


class RoundViewSet(viewsets.ReadOnlyModelViewSet[Round]):
    """Rounds, the latest first; one round is opened with what every job was given."""

    queryset = Round.objects.defer("archive")
    permission_classes = (NotForJobs,)
    pagination_class = ByNumber
    lookup_field = "number"
    lookup_value_regex = r"\d+"

    def get_serializer_class(self) -> type[RoundAnswer]:
        return RoundAnswer if self.action == "list" else RoundInFull

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if self.action == "retrieve":
            context["decisions"] = self._decisions(int(self.kwargs["number"]))
        return context

    def _decisions(self, number: int) -> list[dict[str, Any]]:
        """Only the jobs that the caller may see."""
        archived = opened(Round(number=number))
        seen = {str(pk) for pk in jobs_seen_by(self.request).values_list("pk", flat=True)} if archived else set()
        return [decision for decision in decisions_of(archived) if decision["job"] in seen] if archived else []
