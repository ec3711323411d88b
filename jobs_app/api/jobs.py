"""Jobs over REST: submit, list, show, change, and the verbs."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from cluster_app.representation import IF_MATCH, ShowMany, ShowOne, refuse_stale, single
from jobs_app.admission import Admitted
from jobs_app.api.once import IDEMPOTENCY_KEY, created_once, person
from jobs_app.api.parsers import LARGEST_BATCH_BYTES, read_large_body
from jobs_app.api.seen import jobs_seen_by
from jobs_app.attempts import lock_job
from jobs_app.batch import admitted_batch
from jobs_app.filters import JobFilter
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from jobs_app.queueing import just_written
from jobs_app.serializers import BatchAnswer, JobAnswer, JobBatch, JobInFull, in_full
from jobs_app.services import cancel_job, change_job, hold_job, release_job, requeue_job
from jobs_app.spec import JobChange, JobSpec
from jobs_app.submission import admitted, enter, enter_batch, spec_of_clone


class JobViewSet(ShowMany[Job], ShowOne[Job], viewsets.GenericViewSet[Job]):
    queryset = Job.objects.none()
    filterset_class = JobFilter

    def get_queryset(self) -> JobQuerySet:
        jobs = jobs_seen_by(self.request).select_related("team", "owner")
        attempts = Attempt.objects.live() if self.action == "list" else Attempt.objects.all()
        return jobs.prefetch_related(Prefetch("attempts", attempts.select_related("gpu_type")), "needs")

    def get_serializer_class(self) -> type[BaseSerializer[Job]]:
        return JobAnswer if self.action == "list" else JobInFull

    @extend_schema(request=JobSpec, responses={201: JobInFull}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Submit a job. For an array the answer is its first member."""
        return self._submitted(lambda: admitted(request.data, person(request)))

    @extend_schema(request=JobChange, responses={200: JobInFull}, parameters=[IF_MATCH])
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a job. Of a finished job only the name and the tags."""
        job = self.get_object()
        with transaction.atomic():
            lock_job(job.pk)
            refuse_stale(request, lambda: self._in_full(job))
            change_job(job, request.data, actor=person(request))
        return self._shown(job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the job: at once if it waits, else gracefully, then for certain."""
        return self._done(cancel_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, pk: str) -> Response:
        """Keep the job in the queue; one that runs is requeued gracefully first."""
        return self._done(hold_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Let a held job be scheduled again."""
        return self._done(release_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, pk: str) -> Response:
        """Stop a running job gracefully and put it back in the queue."""
        return self._done(requeue_job)

    @extend_schema(request=JobSpec, responses={201: JobInFull}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        """Submit the same again; the body, if any, overrides fields of the spec. What it waited for is left out."""
        spec = spec_of_clone(self.get_object(), request.data)
        return self._submitted(lambda: admitted(spec, person(request)))

    @extend_schema(request=JobBatch, responses={201: BatchAnswer}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=False, methods=["post"])
    def batch(self, request: Request) -> Response:
        """Submit up to 10,000 jobs: all or none. `#3` in `after` stands for the fourth, which must come before."""
        read_large_body(request, most=LARGEST_BATCH_BYTES)
        return created_once(
            request,
            lambda: admitted_batch(request.data, person(request)),
            lambda asked: _counted(enter_batch(asked)),
        )

    def _submitted(self, admit: Callable[[], Admitted]) -> Response:
        return created_once(self.request, admit, lambda asked: in_full(just_written(enter(asked), asked)))

    def _done(self, verb: Callable[..., None]) -> Response:
        job = self.get_object()
        verb(job, actor=self.request.user)
        return self._shown(job, status.HTTP_202_ACCEPTED)

    def _shown(self, job: Job, code: int = status.HTTP_200_OK) -> Response:
        return single(self.request, self._in_full(job), code)

    def _in_full(self, job: Job) -> dict[str, Any]:
        return in_full(self.get_queryset().get(pk=job.pk))


def _counted(ids: Sequence[UUID]) -> dict[str, Any]:
    return {"count": len(ids), "ids": [str(pk) for pk in ids]}
