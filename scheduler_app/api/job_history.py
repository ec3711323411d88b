"""History of a job over REST: its events and its attempts, the oldest first."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import viewsets

from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.permissions import jobs_seen_by
from jobs_app.serializers import AttemptAnswer, EventAnswer
from rest.pagination import OldestFirst
from rest.representation import ShowMany


class EventViewSet(ShowMany[JobEvent], viewsets.GenericViewSet[JobEvent]):
    """Events of the job with their actors, the oldest first."""

    queryset = JobEvent.objects.none()
    serializer_class = EventAnswer
    pagination_class = OldestFirst
    filter_backends = ()

    def get_queryset(self) -> QuerySet[JobEvent]:
        return _job(self).events.select_related("actor")


class AttemptViewSet(ShowMany[Attempt], viewsets.GenericViewSet[Attempt]):
    """Attempts of the job: their GPUs, times and outcomes."""

    queryset = Attempt.objects.none()
    serializer_class = AttemptAnswer
    pagination_class = OldestFirst
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Attempt]:
        return _job(self).attempts.select_related("gpu_type")


def _job(view: viewsets.GenericViewSet[Any]) -> Job:
    return get_object_or_404(jobs_seen_by(view.request), pk=view.kwargs["pk"])
