"""REST: recurring jobs (`/recurring-jobs`) and their due times: add, list, show, change, pause, resume, delete, run."""

from functools import cached_property
from typing import Any

import django_filters
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.models import zone_is_known
from jobs_app.models import Job, RecurringJob, RecurringRun
from jobs_app.permissions import NotForJobs, caller
from jobs_app.serializers import JobInFull, in_full
from jobs_app.submission.enqueue import just_written
from jobs_app.submission.fields import PlainText
from jobs_app.submission.idempotency import IDEMPOTENCY_KEY, KeyedRequest
from jobs_app.submission.spec import JobSpec
from scheduler_app.recurring_jobs.editing import (
    add_recurring_job,
    admitted_recurring_job,
    change_recurring_job,
    delete_recurring_job,
    pause_recurring_job,
    resume_recurring_job,
)
from scheduler_app.recurring_jobs.history import ShownRun, last_runs, with_states
from scheduler_app.recurring_jobs.submission import admitted_run, run_now
from web.rest.bodies import Strict, Text, body_of
from web.rest.choices import Choice
from web.rest.etags import IF_MATCH, IF_NONE_MATCH, etag_of, refuse_stale
from web.rest.pagination import NewestFirst, OldestFirst
from web.rest.parsers import LARGEST_SPEC_BYTES
from web.rest.representation import FIELDS, ShowMany, fields_wanted, single


@extend_schema_field(JobSpec)
class SpecOfRuns(serializers.JSONField):
    """Spec of a job, which its admission checks."""


class RecurringJobChange(Strict):
    """Fields of a recurring job to change; a new spec makes the caller its owner."""

    name = PlainText(max_length=100, required=False, help_text="Once per team. Default: the name of its jobs.")
    schedule = Text(
        required=False,
        max_length=100,
        help_text="Cron: minute, hour, day, month and weekday. `0 3 * * *` is each day at 03:00.",
    )
    timezone = Text(
        required=False,
        max_length=50,
        source="zone",
        validators=[zone_is_known],
        help_text="Of the schedule, as in the tz database. Default: UTC.",
    )
    concurrency = Choice(
        RecurringJob.Concurrency.choices, required=False, help_text="What is done while the run before is unfinished."
    )
    missed = Choice(
        RecurringJob.Missed.choices, required=False, help_text="What is done after the service was down at due times."
    )
    spec = SpecOfRuns(required=False)


class RecurringJobSpec(RecurringJobChange):
    """A recurring job to add: a schedule, and the spec of the jobs that are submitted by it."""

    schedule = Text(
        max_length=100, help_text="Cron: minute, hour, day, month and weekday. `0 3 * * *` is each day at 03:00."
    )
    spec = SpecOfRuns(help_text="As of a job, without `after`, `begin_time` and `deadline`.")


class DueTimeAnswer(serializers.Serializer[Any]):
    """A due time, and what became of it."""

    due_at = serializers.DateTimeField()
    at = serializers.DateTimeField(help_text="When the scheduler found it.")
    outcome = serializers.ChoiceField(RecurringRun.Outcome.choices)
    job = serializers.UUIDField(allow_null=True, help_text="Of an array the first member. Null unless submitted.")
    state = serializers.ChoiceField(
        Job.State.choices, allow_blank=True, help_text="Of the job; empty without one, or if it is in the archive."
    )
    message = serializers.CharField(help_text="Why it was skipped, missed or refused, and what else was done.")


class RecurringJobAnswer(serializers.ModelSerializer[RecurringJob]):
    """A recurring job with its last due time."""

    team = serializers.CharField(source="team.name")
    owner = serializers.CharField(source="owner.username", help_text="Its runs are jobs of this person.")
    timezone = serializers.CharField(source="zone")
    next_due_at = serializers.SerializerMethodField()
    last_run = serializers.SerializerMethodField()

    class Meta:
        model = RecurringJob
        fields: tuple[str, ...] = (
            *("id", "name", "team", "owner", "schedule", "timezone", "concurrency", "missed", "spec"),
            *("next_due_at", "paused_at", "paused_because", "created_at", "changed_at", "last_run"),
        )
        read_only_fields: tuple[str, ...] = fields

    @extend_schema_field(serializers.DateTimeField(allow_null=True, help_text="Null while it is paused."))
    def get_next_due_at(self, recurring: RecurringJob) -> str | None:
        at = None if recurring.paused_at else recurring.next_due_at
        return str(serializers.DateTimeField().to_representation(at)) if at else None

    @extend_schema_field(DueTimeAnswer(allow_null=True, help_text="Null: none has come."))
    def get_last_run(self, recurring: RecurringJob) -> dict[str, Any] | None:
        runs = self.context["last_runs"]().get(recurring.pk)
        return dict(DueTimeAnswer(runs[0]).data) if runs else None


class RecurringJobInFull(RecurringJobAnswer):
    """One recurring job."""

    etag = serializers.SerializerMethodField(help_text="Entity tag of this state; send it as `If-Match` with a change.")

    class Meta(RecurringJobAnswer.Meta):
        fields = (*RecurringJobAnswer.Meta.fields, "etag")
        read_only_fields = fields

    def get_etag(self, recurring: RecurringJob) -> str:
        return ""  # computed from the whole representation, in `to_representation`

    def to_representation(self, instance: RecurringJob) -> dict[str, Any]:
        whole: dict[str, Any] = super().to_representation(instance)
        return whole | {"etag": etag_of(whole)}


class RecurringJobFilter(django_filters.FilterSet):  # type: ignore[misc]
    team = django_filters.CharFilter(field_name="team__name", label="The team's name.")
    name = django_filters.CharFilter(strip=False, label="The whole name.")

    class Meta:
        model = RecurringJob
        fields: tuple[str, ...] = ()


@extend_schema_view(list=extend_schema(summary="List recurring jobs"))
class RecurringJobViewSet(ShowMany[RecurringJob], viewsets.GenericViewSet[RecurringJob]):
    """Recurring jobs of the caller's teams, the oldest first."""

    queryset = RecurringJob.objects.none()
    serializer_class = RecurringJobAnswer
    filterset_class = RecurringJobFilter
    permission_classes = (NotForJobs,)
    pagination_class = OldestFirst
    lookup_value_regex = r"\d{1,18}"
    largest_bodies = {"create": LARGEST_SPEC_BYTES, "partial_update": LARGEST_SPEC_BYTES}

    def get_queryset(self) -> QuerySet[RecurringJob]:
        return RecurringJob.objects.visible_to(caller(self.request)).select_related("team__budget", "owner")

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        self.listed: list[RecurringJob] = super().paginate_queryset(queryset) or []
        return self.listed

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "last_runs": lambda: self.last_runs}

    @cached_property
    def last_runs(self) -> dict[int, list[ShownRun]]:
        """Of those in the list, read when the first of them is written."""
        return last_runs(self.listed, 1)

    @extend_schema(
        summary="Get a recurring job", responses={200: RecurringJobInFull}, parameters=[FIELDS, IF_NONE_MATCH]
    )
    def retrieve(self, request: Request, pk: str) -> Response:
        """Get a recurring job with its spec, its next due time, and the last one with what became of it."""
        return single(request, _in_full(self.get_object()))

    @extend_schema(
        summary="Add a recurring job",
        request=RecurringJobSpec,
        responses={201: RecurringJobInFull},
        parameters=[IDEMPOTENCY_KEY],
    )
    def create(self, request: Request) -> Response:
        """Add a recurring job. Its spec is checked now, and again at each due time."""
        keyed = KeyedRequest.of(request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        asked = body_of(request, RecurringJobSpec)
        recurring = admitted_recurring_job(asked, owner=caller(request), now=timezone.now())
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            add_recurring_job(recurring)
            answer = _in_full(recurring)
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(
        summary="Change a recurring job",
        request=RecurringJobChange,
        responses={200: RecurringJobInFull},
        parameters=[IF_MATCH],
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a recurring job. A new spec makes the caller its owner, in whose name the next runs are submitted."""
        recurring, asked = self.get_object(), body_of(request, RecurringJobChange)
        change_recurring_job(
            recurring,
            asked,
            actor=caller(request),
            now=timezone.now(),
            check=lambda: refuse_stale(request, lambda: self._shown(recurring)),
        )
        return single(request, self._shown(recurring))

    @extend_schema(summary="Delete a recurring job", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a recurring job, with the record of its due times. Its jobs stay, and those that run go on."""
        delete_recurring_job(self.get_object(), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(summary="Pause a recurring job", request=None, responses={200: RecurringJobInFull})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Pause a recurring job: nothing is submitted until it is resumed. A run that is going on goes on."""
        recurring = self.get_object()
        pause_recurring_job(recurring, actor=caller(request), now=timezone.now())
        return single(request, self._shown(recurring))

    @extend_schema(summary="Resume a recurring job", request=None, responses={200: RecurringJobInFull})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Resume a recurring job from its next due time on. If its owner is gone, the caller becomes its owner."""
        recurring = self.get_object()
        resume_recurring_job(recurring, actor=caller(request), now=timezone.now())
        return single(request, self._shown(recurring))

    @extend_schema(
        summary="Run a recurring job now", request=None, responses={201: JobInFull}, parameters=[IDEMPOTENCY_KEY]
    )
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str) -> Response:
        """Submit a run now, in its owner's name, also while it is paused. The response has the job."""
        keyed = KeyedRequest.of(request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        recurring, now = self.get_object(), timezone.now()
        job = admitted_run(recurring, now)
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            answer = in_full(just_written(run_now(recurring, job, actor=caller(request), now=now), job))
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(
        summary="List due times of a recurring job",
        responses=DueTimeAnswer(many=True),
        parameters=[FIELDS],
        filters=False,
    )
    @action(detail=True, methods=["get"], pagination_class=NewestFirst, filterset_class=None)
    def runs(self, request: Request, pk: str) -> Response:
        """The due times that have come, the latest recorded first, each with what became of it."""
        wanted = fields_wanted(request, dict.fromkeys(DueTimeAnswer().fields))
        paginator = NewestFirst()
        page = paginator.paginate_queryset(self.get_object().runs.all(), request, view=self) or []
        rows = DueTimeAnswer(with_states(page), many=True).data
        return paginator.get_paginated_response([{name: row[name] for name in row if name in wanted} for row in rows])

    def _shown(self, recurring: RecurringJob) -> dict[str, Any]:
        with transaction.atomic():
            return _in_full(self.get_queryset().get(pk=recurring.pk))


def _in_full(recurring: RecurringJob) -> dict[str, Any]:
    return RecurringJobInFull(context={"last_runs": lambda: last_runs([recurring], 1)}).to_representation(recurring)


def _created(answer: Any, *, replayed: bool = False) -> Response:
    headers = {"ETag": etag_of(answer)} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return Response(answer, status=status.HTTP_201_CREATED, headers=headers)
