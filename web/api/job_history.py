"""History of a job over REST: its events, comments and attempts, the oldest first; of an archived job, too."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.errors import JobIsArchived
from jobs_app.job_archive import ArchivedJob, archived_job
from jobs_app.lifecycle.comments import MOST_CHARACTERS, comment_on_job, comments_on, delete_comment
from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.permissions import caller, is_administrator, jobs_seen_by
from jobs_app.serializers import AttemptAnswer, EventAnswer
from jobs_app.tokens import JobToken
from web.rest.bodies import Strict, Text, body_of
from web.rest.pagination import OldestFirst
from web.rest.representation import ShowMany, fields_wanted


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


class Comment(Strict):
    """Comment on a job."""

    text = Text(help_text=f"At most {MOST_CHARACTERS} characters; spaces and line breaks in a row become one space.")


class CommentViewSet(viewsets.GenericViewSet[JobEvent]):
    """Comments on the job, which are events of the kind `commented`."""

    queryset = JobEvent.objects.none()
    serializer_class = EventAnswer

    @extend_schema(request=Comment, responses={201: EventAnswer})
    def create(self, request: Request, pk: UUID) -> Response:
        """Comment on a job, also on a finished one. The comment is an event of the job, of the kind `commented`."""
        comment = comment_on_job(self._job(), body_of(request, Comment)["text"], actor=caller(request))
        return Response(EventAnswer(comment).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID, event: int) -> Response:
        """Delete a comment. Only its author and administrators can."""
        comment = get_object_or_404(comments_on(self._job()), pk=event)
        delete_comment(comment, actor=caller(request), administrator=is_administrator(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _job(self) -> Job:
        try:
            return _job(self)
        except Http404:
            if archived_for(self.request, self.kwargs["pk"]):
                raise JobIsArchived from None
            raise


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
