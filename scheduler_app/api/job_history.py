"""History of a job over REST: its events and its attempts, the oldest first; of an archived job, too."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.job_archive import ArchivedJob, archived_job
from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.permissions import caller, jobs_seen_by
from jobs_app.serializers import AttemptAnswer, EventAnswer
from jobs_app.tokens import JobToken
from rest.pagination import OldestFirst
from rest.representation import ShowMany, fields_wanted


class EventViewSet(ShowMany[JobEvent], viewsets.GenericViewSet[JobEvent]):
    """Events of the job with their actors, the oldest first."""

    queryset = JobEvent.objects.none()
    serializer_class = EventAnswer
    pagination_class = OldestFirst
    filter_backends = ()

    def get_queryset(self) -> QuerySet[JobEvent]:
        return _job(self).events.select_related("actor")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        try:
            return super().list(request, *args, **kwargs)
        except Http404:
            return _one_page(request, EventAnswer.Meta.fields, _archived(request, kwargs["pk"]).events)


class AttemptViewSet(ShowMany[Attempt], viewsets.GenericViewSet[Attempt]):
    """Attempts of the job: their GPUs, times and outcomes."""

    queryset = Attempt.objects.none()
    serializer_class = AttemptAnswer
    pagination_class = OldestFirst
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Attempt]:
        return _job(self).attempts.select_related("gpu_type")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        try:
            return super().list(request, *args, **kwargs)
        except Http404:
            return _one_page(request, AttemptAnswer.Meta.fields, _archived(request, kwargs["pk"]).whole["attempts"])


def archived_for(request: Request, pk: UUID | str) -> ArchivedJob | None:
    """The archived job, if it exists and the caller may see it; a job's own token sees none."""
    return None if isinstance(request.auth, JobToken) else archived_job(pk, caller(request))


def _archived(request: Request, pk: UUID) -> ArchivedJob:
    if (archived := archived_for(request, pk)) is None:
        raise Http404
    return archived


def _one_page(request: Request, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> Response:
    wanted = fields_wanted(request, dict.fromkeys(fields))
    results = [{name: row.get(name) for name in fields if name in wanted} for row in rows]
    return Response({"next": None, "previous": None, "results": results})


def _job(view: viewsets.GenericViewSet[Any]) -> Job:
    return get_object_or_404(jobs_seen_by(view.request), pk=view.kwargs["pk"])
