"""Jobs over REST: submit or plan (`dry_run`), list, show, change, cancel, hold, release, requeue, clone, explain."""

from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Prefetch
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounting_app.fairness.budgets import with_budget_notes
from connections_app.checkpoints.copying import ChosenCheckpoint, begun_with, choose, copied, drop_copy
from insight_app.explain.decisions import explain_job
from insight_app.explain.dry_run import dry_run_of_admitted
from insight_app.explain.plan_forecast import forecast_plan
from insight_app.explain.solve_slots import solve_slots
from insight_app.explain.what_if import what_would_start
from insight_app.start_forecasts.showing import ShownForecast, read_forecasts
from jobs_app.errors import JobIsArchived
from jobs_app.filters import JobFilter
from jobs_app.lifecycle.attempts import lock_job
from jobs_app.lifecycle.commands import cancel_job, change_job, hold_job, release_job, requeue_job
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from jobs_app.permissions import caller, is_administrator, jobs_seen_by
from jobs_app.serializers import BatchAnswer, JobAnswer, JobBatch, JobInFull, in_full
from jobs_app.submission.admission import Admitted
from jobs_app.submission.batch import admitted_batch
from jobs_app.submission.changing import read_change
from jobs_app.submission.enqueue import draft_spec, just_written
from jobs_app.submission.idempotency import IDEMPOTENCY_KEY, KeyedRequest
from jobs_app.submission.spec import JobChange, JobSpec
from jobs_app.submission.submit import admitted, cloned_spec, enter, enter_batch
from web.api.forecasts import JobForecastAnswer, QueueForecastAnswer
from web.api.job_history import archived_for
from web.api.serializers import Explanation, PlanAnswer
from web.rest.etags import IF_MATCH, IF_NONE_MATCH, etag_of, refuse_stale
from web.rest.parsers import LARGEST_BATCH_BYTES, LARGEST_SPEC_BYTES, read_large_body
from web.rest.query import Flag, query_of
from web.rest.representation import FIELDS, ShowMany, single


class SubmitQuery(serializers.Serializer[Any]):
    dry_run = Flag(required=False, help_text="Validate the spec and return the job's plan, without submitting it.")
    forecast = Flag(required=False, help_text="With `dry_run`: also play the queue with the job, which takes seconds.")


class CloneQuery(serializers.Serializer[Any]):
    checkpoint = serializers.CharField(
        required=False,
        max_length=255,
        help_text="Name of a checkpoint of the job, as in `/jobs/{id}/checkpoints`, or `.` for all that it has saved.",
    )


class PlannedForecastAnswer(JobForecastAnswer):
    """When a job would start and end, and what that costs others."""

    others_wait_h = serializers.FloatField(
        allow_null=True,
        help_text="Hours that others wait for its fewest GPUs, from its start to its end, by the prices of the plan; "
        "null: not known.",
    )
    promise = serializers.CharField(
        help_text="What can be promised of its deadline, at what cost to others; empty: it has none, or none so near."
    )


class PlanWithForecast(PlanAnswer):
    """Plan of a job from a dry run; of an array, of each member, and the forecast of its first one."""

    forecast = PlannedForecastAnswer(allow_null=True, help_text="Null unless requested with `forecast=true`.")


class ExplainQuery(serializers.Serializer[Any]):
    would_start = Flag(required=False, help_text="Also run the what-if analysis, which plans several rounds.")


class ListedJob(JobAnswer):
    """A job with its spec, the GPUs of its live attempt, and when it starts and ends."""

    forecast = serializers.SerializerMethodField()

    class Meta(JobAnswer.Meta):
        fields = (*JobAnswer.Meta.fields, "forecast")
        read_only_fields = fields

    @extend_schema_field(QueueForecastAnswer(allow_null=True, help_text="Null: `/jobs/{id}/forecast` says why."))
    def get_forecast(self, job: Job) -> dict[str, Any] | None:
        found = self.context["view"].forecasts.get(job.pk)
        return dict(QueueForecastAnswer(found).data) if found else None


@extend_schema_view(list=extend_schema(summary="List jobs"))
class JobViewSet(ShowMany[Job], viewsets.GenericViewSet[Job]):
    """Jobs that the caller may see, newest first; those of the archive are not in the list."""

    queryset = Job.objects.none()
    filterset_class = JobFilter
    largest_bodies = {"create": LARGEST_SPEC_BYTES, "clone": LARGEST_SPEC_BYTES, "batch": LARGEST_BATCH_BYTES}

    def get_queryset(self) -> JobQuerySet:
        jobs = jobs_seen_by(self.request).select_related("team", "owner", "code").defer("code__diff")
        attempts = Attempt.objects.live_or_latest() if self.action == "list" else Attempt.objects.all()
        return jobs.prefetch_related(Prefetch("attempts", attempts.select_related("gpu_type")), "needs")

    def get_serializer_class(self) -> type[BaseSerializer[Job]]:
        return ListedJob if self.action == "list" else JobInFull

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        self.listed: list[Job] = super().paginate_queryset(queryset) or []
        return self.listed

    @cached_property
    def forecasts(self) -> dict[UUID, ShownForecast]:
        """Of the jobs in the list, read when the first of them is written."""
        return read_forecasts(self.listed)

    @extend_schema(summary="Get a job", parameters=[FIELDS, IF_NONE_MATCH])
    def retrieve(self, request: Request, pk: str) -> Response:
        """Get a job; one that ended long ago from the archive, as it was then."""
        return single(request, self._in_full_or_archived(pk))

    @extend_schema(
        request=JobSpec, responses={200: PlanWithForecast, 201: JobInFull}, parameters=[SubmitQuery, IDEMPOTENCY_KEY]
    )
    def create(self, request: Request) -> Response:
        """Submit a job. The response has the job, of an array its first member; with `dry_run` its plan (200)."""
        if (asked := query_of(request, SubmitQuery)).get("dry_run"):
            job = admitted(request.data, caller(request), administrator=is_administrator(request))
            plan = dry_run_of_admitted(job) | {"spec": draft_spec(job), "forecast": None}
            if asked.get("forecast"):
                plan["forecast"] = forecast_plan(job, caller(request), timezone.now())._asdict()
            return Response(PlanWithForecast(plan).data)
        return self._submitted(request.data)

    @extend_schema(request=JobSpec, responses={201: JobInFull}, parameters=[CloneQuery, IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        """Submit the same job again, without its dependencies. Fields of the body, if any, override its spec.

        With `checkpoint` it begins with a copy of that checkpoint.
        """
        spec = cloned_spec(self._in_full_or_archived(pk)["spec"], request.data)
        name = query_of(request, CloneQuery).get("checkpoint")
        return self._submitted(spec, (lambda: choose(self.get_object(), name)) if name else None)

    def _submitted(self, spec: Any, checkpoint: Callable[[], ChosenCheckpoint] | None = None) -> Response:
        """201 with the job, written once per idempotency key; it is admitted before anything is locked."""
        keyed = KeyedRequest.of(self.request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        job = admitted(spec, caller(self.request), administrator=is_administrator(self.request))
        (job,) = with_budget_notes([job], timezone.now())
        if checkpoint is None:
            return self._entered(keyed, job)
        chosen = checkpoint()
        job = begun_with(chosen, job)
        with copied(chosen, job.id):
            return self._entered(keyed, job)

    def _entered(self, keyed: KeyedRequest, job: Admitted) -> Response:
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                drop_copy(job.id)
                return _created(answer, replayed=True)
            answer = in_full(just_written(enter(job), job))
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(request=JobBatch, responses={201: BatchAnswer}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=False, methods=["post"])
    def batch(self, request: Request) -> Response:
        """Submit up to 10,000 jobs: all or none. In `after`, `#3` refers to the fourth job, which must come earlier."""
        read_large_body(request, most=LARGEST_BATCH_BYTES)
        keyed = KeyedRequest.of(request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        jobs = admitted_batch(request.data, caller(request), administrator=is_administrator(request))
        jobs = with_budget_notes(jobs, timezone.now())
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            ids = enter_batch(jobs)
            answer = {"count": len(ids), "ids": [str(pk) for pk in ids]}
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(request=JobChange, responses={200: JobInFull}, parameters=[IF_MATCH])
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a job. Of a finished job only the name and the tags, of a job that waits also what it requests."""
        job, administrator = self.get_object(), is_administrator(request)
        # Before the lock, which on SQLite is everybody's.
        asked = read_change(job, request.data, actor=caller(request), administrator=administrator)
        with transaction.atomic():
            lock_job(job.pk)
            refuse_stale(request, lambda: self._in_full(job))
            change_job(job, asked, actor=caller(request), administrator=administrator)
        return self._shown(job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel the job: a waiting job at once, a running one after its grace period at the latest."""
        return self._done(cancel_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, pk: str) -> Response:
        """Hold the job in the queue; a running job is stopped gracefully and requeued first."""
        return self._done(hold_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Release a held job, so that it can be scheduled again."""
        return self._done(release_job)

    @extend_schema(request=None, responses={202: JobInFull})
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, pk: str) -> Response:
        """Stop a running job gracefully and put it back in the queue."""
        return self._done(requeue_job)

    def _done(self, verb: Callable[..., None]) -> Response:
        job = self.get_object()
        verb(job, actor=self.request.user)
        return self._shown(job, status.HTTP_202_ACCEPTED)

    def _shown(self, job: Job, code: int = status.HTTP_200_OK) -> Response:
        return single(self.request, self._in_full(job), code)

    def get_object(self) -> Job:
        try:
            return super().get_object()
        except Http404:
            if archived_for(self.request, self.kwargs["pk"]):
                raise JobIsArchived from None
            raise

    def _in_full_or_archived(self, pk: str) -> dict[str, Any]:
        try:
            return in_full(super().get_object())
        except Http404:
            if (archived := archived_for(self.request, pk)) is None:
                raise
            return archived.whole

    def _in_full(self, job: Job) -> dict[str, Any]:
        return in_full(self.get_queryset().get(pk=job.pk))


def _created(answer: Any, *, replayed: bool = False) -> Response:
    headers = {"ETag": etag_of(answer)} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return Response(answer, status=status.HTTP_201_CREATED, headers=headers)


class ExplainView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = Explanation

    @extend_schema(responses=Explanation, parameters=[ExplainQuery])
    def get(self, request: Request, pk: str) -> Response:
        """Explain the state of a job: reasons with numbers, and the throughputs that the latest round used."""
        job, asked = get_object_or_404(jobs_seen_by(request), pk=pk), query_of(request, ExplainQuery)
        explanation = explain_job(job, timezone.now())
        if asked.get("would_start"):
            with solve_slots.slot_for(caller(request)):
                explanation["would_start"] = what_would_start(job, timezone.now())
        return Response(Explanation(explanation).data)
