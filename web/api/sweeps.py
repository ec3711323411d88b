"""REST: sweeps (`/sweeps`) and their trials: start, list, show, stop, delete."""

from datetime import datetime
from functools import cached_property
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.models import Sweep, SweepTrial
from jobs_app.permissions import NotForJobs, caller
from jobs_app.submission.idempotency import IDEMPOTENCY_KEY, KeyedRequest
from scheduler_app.sweeps.admission import HalvingSpec, MetricSpec, PopulationSpec, SweepSpec, admitted_sweep
from scheduler_app.sweeps.editing import delete_sweep, start_sweep, stop_sweep
from scheduler_app.sweeps.history import SweepCounts, counts_of
from scheduler_app.sweeps.outlook import Outlook, outlook_of
from scheduler_app.sweeps.trial_spec import compared_at
from web.rest.pagination import NewestFirst, OldestFirst
from web.rest.parsers import LARGEST_SPEC_BYTES
from web.rest.representation import FIELDS, ShowMany, fields_wanted, single


class SweepCountsAnswer(serializers.Serializer[Any]):
    """Trials of a sweep by state."""

    running = serializers.IntegerField(help_text="They run, or wait for GPUs.")
    resting = serializers.IntegerField(
        help_text="Held at a rung: they go on if later trials turn out worse; or a member of a population."
    )
    succeeded = serializers.IntegerField()
    stopped_early = serializers.IntegerField()
    replaced = serializers.IntegerField(help_text="In a population: copies of better ones took their places.")
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()


class TrialAnswer(serializers.ModelSerializer[SweepTrial]):
    """A trial: its hyperparameters, its job and its results."""

    job = serializers.UUIDField(source="job_id")
    rung = serializers.SerializerMethodField()

    class Meta:
        model = SweepTrial
        fields: tuple[str, ...] = (
            *("number", "job", "params", "state", "value", "values", "rung", "source", "source_step", "replaces"),
            *("changes", "message", "created_at", "ended_at"),
        )
        read_only_fields = fields
        extra_kwargs = {
            "params": {"help_text": "Hyperparameter → value."},
            "values": {
                "help_text": "Of the metric at each rung or mark that it has reached; a copy begins with its source's."
            },
        }

    @extend_schema_field(
        serializers.IntegerField(help_text="Number of the rung, or mark, to which it may run, from 0 on.")
    )
    def get_rung(self, trial: SweepTrial) -> int:
        return trial.target


class SweepAnswer(serializers.ModelSerializer[Sweep]):
    """A sweep with the counts of its trials and the best one so far."""

    team = serializers.CharField(source="team.name")
    owner = serializers.CharField(source="owner.username", help_text="Its trials are jobs of this person.")
    metric = serializers.SerializerMethodField()
    early_terminate = serializers.SerializerMethodField()
    population = serializers.SerializerMethodField()
    rungs = serializers.SerializerMethodField()
    marks = serializers.SerializerMethodField()
    trials = serializers.SerializerMethodField()
    best = serializers.SerializerMethodField()

    class Meta:
        model = Sweep
        fields: tuple[str, ...] = (
            *("id", "name", "team", "owner", "state", "message", "method", "metric", "parameters", "early_terminate"),
            *("population", "rungs", "marks", "run_cap", "at_a_time", "max_failed", "seed", "spec", "created_at"),
            *("ended_at", "trials", "best"),
        )
        read_only_fields = fields

    @extend_schema_field(MetricSpec)
    def get_metric(self, sweep: Sweep) -> dict[str, str]:
        return {"name": sweep.metric, "goal": sweep.goal}

    @extend_schema_field(HalvingSpec(allow_null=True))
    def get_early_terminate(self, sweep: Sweep) -> Any:
        return sweep.early_terminate

    @extend_schema_field(PopulationSpec(allow_null=True))
    def get_population(self, sweep: Sweep) -> Any:
        return sweep.population

    @extend_schema_field(
        serializers.ListField(
            child=serializers.IntegerField(),
            help_text="Steps of each rung; empty: no trial is stopped early.",
        )
    )
    def get_rungs(self, sweep: Sweep) -> list[int]:
        return [] if sweep.population else list(compared_at(sweep))

    @extend_schema_field(
        serializers.ListField(
            child=serializers.IntegerField(), help_text="Steps of each mark of a population; empty: it is none."
        )
    )
    def get_marks(self, sweep: Sweep) -> list[int]:
        return list(compared_at(sweep)) if sweep.population else []

    @extend_schema_field(SweepCountsAnswer)
    def get_trials(self, sweep: Sweep) -> dict[str, int]:
        return self._counts(sweep).by_state

    @extend_schema_field(TrialAnswer(allow_null=True, help_text="Null: none has ended with a value."))
    def get_best(self, sweep: Sweep) -> dict[str, Any] | None:
        best = self._counts(sweep).best
        return dict(TrialAnswer(best).data) if best else None

    def _counts(self, sweep: Sweep) -> SweepCounts:
        found: SweepCounts = self.context["counts"]()[sweep.pk]
        return found


class SweepInFull(SweepAnswer):
    """A sweep with its cost and its end."""

    gpu_hours = serializers.SerializerMethodField()
    saved_gpu_hours = serializers.SerializerMethodField()
    ends_at = serializers.SerializerMethodField()

    class Meta(SweepAnswer.Meta):
        fields = (*SweepAnswer.Meta.fields, "gpu_hours", "saved_gpu_hours", "ends_at")
        read_only_fields = fields

    @extend_schema_field(serializers.FloatField(help_text="Spent so far, of jobs that are not in the archive."))
    def get_gpu_hours(self, sweep: Sweep) -> float:
        return self._outlook.gpu_hours

    @extend_schema_field(
        serializers.FloatField(
            allow_null=True,
            help_text="Estimate: what trials that were stopped early would have taken to max_iter, at their own cost "
            "of a step. Null: nothing is stopped early.",
        )
    )
    def get_saved_gpu_hours(self, sweep: Sweep) -> float | None:
        return self._outlook.saved_gpu_hours

    @extend_schema_field(
        serializers.DateTimeField(
            allow_null=True, help_text="At the pace so far; null: it has ended, or has just begun."
        )
    )
    def get_ends_at(self, sweep: Sweep) -> datetime | None:
        return self._outlook.ends_at

    @cached_property
    def _outlook(self) -> Outlook:
        sweep = self.instance
        assert isinstance(sweep, Sweep)  # noqa: S101 - of one sweep
        return outlook_of(sweep, list(sweep.trials.all()), timezone.now())


class SweepFilter(django_filters.FilterSet):  # type: ignore[misc]
    team = django_filters.CharFilter(field_name="team__name", label="The team's name.")
    name = django_filters.CharFilter(strip=False, label="The whole name.")
    state = django_filters.MultipleChoiceFilter(choices=Sweep.State.choices, label="Any of these states.")

    class Meta:
        model = Sweep
        fields: tuple[str, ...] = ()


@extend_schema_view(list=extend_schema(summary="List sweeps"))
class SweepViewSet(ShowMany[Sweep], viewsets.GenericViewSet[Sweep]):
    """Sweeps of the caller's teams, the newest first."""

    queryset = Sweep.objects.none()
    serializer_class = SweepAnswer
    filterset_class = SweepFilter
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    lookup_value_regex = r"\d{1,18}"
    largest_bodies = {"create": LARGEST_SPEC_BYTES}

    def get_queryset(self) -> QuerySet[Sweep]:
        return Sweep.objects.visible_to(caller(self.request)).select_related("team", "owner")

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        self.listed: list[Sweep] = super().paginate_queryset(queryset) or []
        return self.listed

    def get_serializer_context(self) -> dict[str, Any]:
        counts: dict[int, SweepCounts] = {}

        def read() -> dict[int, SweepCounts]:
            if not counts:
                counts.update(counts_of(self.listed))
            return counts

        return {**super().get_serializer_context(), "counts": read}

    @extend_schema(summary="Get a sweep", responses={200: SweepInFull}, parameters=[FIELDS])
    def retrieve(self, request: Request, pk: str) -> Response:
        """Get a sweep with the counts of its trials and the best one so far."""
        return single(request, _shown(self.get_object()))

    @extend_schema(
        summary="Start a sweep", request=SweepSpec, responses={201: SweepInFull}, parameters=[IDEMPOTENCY_KEY]
    )
    def create(self, request: Request) -> Response:
        """Start a sweep. Its trials are ordinary jobs of the caller, submitted a few at a time."""
        keyed = KeyedRequest.of(request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        sweep = admitted_sweep(request.data, owner=caller(request), now=timezone.now())
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            start_sweep(sweep)
            answer = _shown(sweep)
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(summary="Delete a sweep", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a sweep that has ended, with the record of its trials. Their jobs stay."""
        delete_sweep(self.get_object(), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(summary="Stop a sweep", request=None, responses={200: SweepInFull})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stop a sweep: no trial is started any more, and those that run, wait or are held are cancelled."""
        sweep = self.get_object()
        stop_sweep(sweep, actor=caller(request))
        sweep.refresh_from_db()
        return single(request, _shown(sweep))

    @extend_schema(
        summary="List trials of a sweep", responses=TrialAnswer(many=True), parameters=[FIELDS], filters=False
    )
    @action(detail=True, methods=["get"], pagination_class=OldestFirst, filterset_class=None)
    def trials(self, request: Request, pk: str) -> Response:
        """The trials of a sweep by number."""
        wanted = fields_wanted(request, dict.fromkeys(TrialAnswer().fields))
        paginator = OldestFirst()
        page = paginator.paginate_queryset(self.get_object().trials.all(), request, view=self) or []
        rows = TrialAnswer(page, many=True).data
        return paginator.get_paginated_response([{name: row[name] for name in row if name in wanted} for row in rows])


def _shown(sweep: Sweep) -> dict[str, Any]:
    answer: dict[str, Any] = dict(SweepInFull(sweep, context={"counts": lambda: counts_of([sweep])}).data)
    return answer


def _created(answer: Any, *, replayed: bool = False) -> Response:
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return Response(answer, status=status.HTTP_201_CREATED, headers=headers)
