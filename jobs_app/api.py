"""Jobs over REST: submit, list, show, cancel."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from jobs_app.authentication import JobToken
from jobs_app.filters import JobFilter
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from jobs_app.serializers import JobAnswer, JobInFull
from jobs_app.services import cancel_job
from jobs_app.spec import JobSpec
from jobs_app.submission import submit_job


def jobs_seen_by(request: Request) -> JobQuerySet:
    """The jobs that the caller may see: their teams' jobs, or for a job's own token that job."""
    if isinstance(request.auth, JobToken):
        return Job.objects.filter(pk=request.auth.attempt.job_id)
    return Job.objects.visible_to(request.user)  # type: ignore[arg-type]


class Json(JSONParser):
    """JSON; ten thousand brackets are a fault of the caller and no crash of ours."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error


class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Job]):
    queryset = Job.objects.none()
    filterset_class = JobFilter
    parser_classes = (Json,)

    def get_queryset(self) -> JobQuerySet:
        jobs = jobs_seen_by(self.request).select_related("team", "owner")
        attempts = Attempt.objects.live() if self.action == "list" else Attempt.objects.all()
        return jobs.prefetch_related(Prefetch("attempts", attempts.select_related("gpu_type")), "needs")

    def get_serializer_class(self) -> type[BaseSerializer[Job]]:
        return JobAnswer if self.action == "list" else JobInFull

    @extend_schema(request=JobSpec, responses={201: JobInFull})
    def create(self, request: Request) -> Response:
        """Submit a job. For an array the answer is its first member."""
        job = submit_job(request.data, owner=request.user)  # type: ignore[arg-type]
        return Response(self._in_full(job), status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the job: at once if it waits, else gracefully, then for certain."""
        job = self.get_object()
        cancel_job(job, actor=request.user)  # type: ignore[arg-type]
        return Response(self._in_full(job), status=status.HTTP_202_ACCEPTED)

    def _in_full(self, job: Job) -> Any:
        return JobInFull(self.get_queryset().get(pk=job.pk)).data
