"""REST: runs of the policy lab (`/lab/runs`)."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from insight_app.lab.requests import MOST_NODES, MOST_POLICIES, USUAL_DAYS, LabRequest, ask_for_run, cancel_run
from insight_app.lab.results import SIZE_NAMES
from insight_app.lab.scenario import BudgetChange, QuotaChange
from insight_app.lab.uploads import MOST_BYTES, UPLOAD_FORMATS, Upload
from insight_app.models import LabRun
from insight_app.models.lab_run import HIDDEN, MOST_DAYS
from jobs_app.models import Budget
from jobs_app.models.budget import LEAST_GPU_HOURS, MOST_GPU_HOURS
from jobs_app.permissions import NotForJobs, caller
from jobs_app.submission.fields import MOST_GPUS, Number
from scheduler_app.policy.settings import LONGEST_S
from simulation.traces.reading import LEAST_WEIGHT, MOST_WEIGHT
from web.rest.bodies import DictOf, ListOf, Strict, Text, body_of
from web.rest.choices import Choice
from web.rest.pagination import NewestFirst
from web.rest.parsers import read_large_body
from web.rest.representation import ShowMany, ShowOne

MOST_LIMITS = 1_000
"""Quotas or budgets of a run."""
LARGEST_BODY_BYTES = 4 * MOST_BYTES
"""A trace and a table of rates, in which JSON writes some characters as two or more."""


class QuotaOfRun(Strict):
    """Quota of a team on a GPU type."""

    team = Text(max_length=200)
    gpu_type = Text(max_length=60)
    gpus = serializers.IntegerField(min_value=0, max_value=MOST_GPUS, allow_null=True, help_text="Null: no quota.")
    borrowing_limit = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, allow_null=True, default=None, help_text="Null: none."
    )
    lending_limit = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, allow_null=True, default=None, help_text="Null: none."
    )

    def validate_gpu_type(self, value: str) -> str:
        return value.lower()


class BudgetOfRun(Strict):
    """Budget of a team in reference GPU-hours."""

    team = Text(max_length=200)
    gpu_hours = Number(
        min_value=LEAST_GPU_HOURS, max_value=MOST_GPU_HOURS, allow_null=True, help_text="Null: no budget."
    )
    period = Choice(Budget.Period.choices, default=Budget.Period.MONTH.value)
    kind = Choice(Budget.Kind.choices, default=Budget.Kind.SOFT.value)


class LabRunSpec(Strict):
    """A run of the lab: the history of some days under other policies, on the same or on other nodes."""

    policies = ListOf(
        child=Text(max_length=200),
        min_length=1,
        max_length=MOST_POLICIES,
        help_text="Names, with parameters as in `sia:power=-0.5,gap=0.01`.",
    )
    days = serializers.IntegerField(
        min_value=1, max_value=MOST_DAYS, required=False, help_text=f"The last N days; default: {USUAL_DAYS}."
    )
    trace = Text(
        required=False,
        trim_whitespace=False,
        help_text=f"In place of the last days: the text of a trace, {MOST_BYTES >> 20} MiB at most.",
    )
    trace_format = Choice(choices=UPLOAD_FORMATS, default="csv", help_text="Format of `trace`.")
    throughputs = Text(
        required=False,
        trim_whitespace=False,
        help_text="Rates of its workloads, as text in Gavel's JSON format; traces in Gavel's format need it.",
    )
    round_length_s = Number(
        required=False, allow_null=True, min_value=1, max_value=LONGEST_S, help_text="Default: as it is now."
    )
    nodes = DictOf(
        most=MOST_LIMITS,
        child=serializers.IntegerField(min_value=-MOST_NODES, max_value=MOST_NODES),
        required=False,
        help_text="GPU type → nodes of its usual size that are added, or taken if negative.",
    )
    team_weights = DictOf(
        most=MOST_LIMITS,
        child=Number(min_value=LEAST_WEIGHT, max_value=MOST_WEIGHT),
        required=False,
        help_text="Team → its weight in place of the present one.",
    )
    quotas = ListOf(
        child=QuotaOfRun(),
        required=False,
        max_length=MOST_LIMITS,
        help_text="In place of the present ones on these GPU types.",
    )
    budgets = ListOf(
        child=BudgetOfRun(),
        required=False,
        max_length=MOST_LIMITS,
        help_text="In place of the present ones of these teams.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "trace" not in attrs and attrs.get("throughputs"):
            raise serializers.ValidationError({"throughputs": "It is for a `trace`: give that, too."})
        if "trace" in attrs and "days" in attrs:
            raise serializers.ValidationError({"days": "Give either days or a trace."})
        return attrs

    @staticmethod
    def request_of(body: dict[str, Any]) -> LabRequest:
        """The request of a valid body."""
        body["quotas"] = [QuotaChange(**one) for one in body.get("quotas", ())]
        body["budgets"] = [BudgetChange(**one) for one in body.get("budgets", ())]
        text, format_name, table = body.pop("trace", None), body.pop("trace_format"), body.pop("throughputs", "")
        if text is None:
            return LabRequest(**body)
        return LabRequest(**body, upload=Upload(text=text, format_name=format_name, throughputs=table))


def _figures(text: str, **options: Any) -> serializers.DictField:
    """Figures by name; null where one is not defined."""
    return serializers.DictField(child=serializers.FloatField(allow_null=True), help_text=text, **options)


def _all_parameters() -> serializers.DictField:
    text = "All parameters with which it was simulated; not there in runs of earlier versions."
    return serializers.DictField(required=False, help_text=text)


class LabCurves(serializers.Serializer[Any]):
    jct_h = serializers.ListField(child=serializers.FloatField(), help_text="Completion times, each per cent of jobs.")
    rho = serializers.ListField(child=serializers.FloatField(), help_text="Finish-time fairness, likewise.")
    busy = serializers.ListField(
        child=serializers.FloatField(), help_text="Busy part of all GPUs in equal intervals of the simulated time."
    )
    hours = serializers.FloatField(help_text="Length of the simulated time.")


class LabChange(serializers.Serializer[Any]):
    jobs = serializers.IntegerField(help_text="Jobs that are done in both simulations.")
    avg_jct_h = serializers.FloatField(allow_null=True)
    change = serializers.FloatField(allow_null=True, help_text="Relative, from the current policy as simulated.")


class LabTeam(LabChange):
    team = serializers.CharField()


class LabSize(LabChange):
    size = serializers.ChoiceField(choices=SIZE_NAMES, help_text="By the fewest GPUs that the jobs may run on.")


class LabPresent(serializers.Serializer[Any]):
    policy = serializers.CharField()
    parameters = _all_parameters()
    figures = _figures("As simulated on the present nodes.")
    errors = _figures(  # type: ignore[assignment]  # the class keeps its own property
        "Relative difference from `actual`; empty for an uploaded trace."
    )
    curves = LabCurves()


class LabPolicy(serializers.Serializer[Any]):
    policy = serializers.CharField()
    parameters = _all_parameters()
    failed = serializers.CharField(help_text="Why there are no figures.")
    figures = _figures("As simulated.", allow_null=True)
    curves = LabCurves(allow_null=True)
    teams = LabTeam(many=True, help_text="The winners first.")
    sizes = LabSize(many=True)


class LabResult(serializers.Serializer[Any]):
    """Result of a run; times are in hours, energy is of GPUs while jobs have them, by the power of their types."""

    jobs = serializers.IntegerField()
    span_h = serializers.FloatField(
        allow_null=True,
        required=False,
        help_text="Length of the history: `days`, or from the first job on; null: an uploaded trace.",
    )
    cluster = serializers.CharField(help_text="That of `policies`, as in a100=2x8.")
    actual = _figures("What really happened; null for an uploaded trace.", allow_null=True)
    present = LabPresent()
    policies = LabPolicy(many=True)
    summary = serializers.CharField()


class LabRunAnswer(serializers.ModelSerializer[LabRun]):
    quotas = QuotaOfRun(many=True, read_only=True)
    budgets = BudgetOfRun(many=True, read_only=True)
    owner = serializers.CharField(source="owner.username", read_only=True)
    done = serializers.IntegerField(read_only=True, help_text="Jobs that have been simulated to their end.")
    total = serializers.IntegerField(read_only=True, help_text="Jobs to simulate, in all simulations; 0: not known.")

    class Meta:
        model = LabRun
        fields: tuple[str, ...] = (
            "id",
            "owner",
            "days",
            "trace_format",
            "policies",
            "round_length_s",
            "nodes",
            "team_weights",
            "quotas",
            "budgets",
            "state",
            "done",
            "total",
            "message",
            "created_at",
            "finished_at",
        )
        read_only_fields: tuple[str, ...] = fields


class LabRunInFull(LabRunAnswer):
    result = serializers.SerializerMethodField()

    @extend_schema_field(LabResult(allow_null=True))
    def get_result(self, run: LabRun) -> dict[str, Any] | None:
        return run.result if self._shown(run) else None

    def to_representation(self, instance: LabRun) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        return shown if self._shown(instance) else shown | {"message": HIDDEN}

    def _shown(self, run: LabRun) -> bool:
        return run.shows_result_to(caller(self.context["request"]))

    class Meta(LabRunAnswer.Meta):
        fields = (*LabRunAnswer.Meta.fields, "result")
        read_only_fields = fields


@extend_schema_view(
    list=extend_schema(summary="List runs of the policy lab"),
    retrieve=extend_schema(summary="Get a run of the policy lab with its result"),
)
class LabRunViewSet(ShowMany[LabRun], ShowOne[LabRun], viewsets.GenericViewSet[LabRun]):
    """The caller's runs, for staff those of all, newest first."""

    queryset = LabRun.objects.none()
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    filter_backends = ()
    lookup_value_regex = r"\d{1,18}"
    largest_bodies = {"create": LARGEST_BODY_BYTES}

    def get_queryset(self) -> QuerySet[LabRun]:
        runs = LabRun.objects.visible_to(caller(self.request)).select_related("owner")
        return runs.defer("result") if self.action == "list" else runs

    def get_serializer_class(self) -> type[LabRunAnswer]:
        return LabRunAnswer if self.action == "list" else LabRunInFull

    @extend_schema(request=LabRunSpec, responses={201: LabRunInFull}, summary="Ask for a run of the policy lab")
    def create(self, request: Request) -> Response:
        """Simulate the jobs of the caller's teams, of all teams for staff, or those of a trace, under these policies.

        A person may have three unfinished runs. Runs of one team are simulated one after the other.
        """
        read_large_body(request, most=LARGEST_BODY_BYTES)
        asked = LabRunSpec.request_of(body_of(request, LabRunSpec))
        run = ask_for_run(asked, owner=caller(request), now=timezone.now())
        return Response(self._in_full(run), status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=LabRunInFull, summary="Cancel a run of the policy lab")
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel an unfinished run; its process ends within seconds, at the end of a simulated round."""
        run = self.get_object()
        cancel_run(run, now=timezone.now())
        run.refresh_from_db()
        return Response(self._in_full(run))

    def _in_full(self, run: LabRun) -> Any:
        return LabRunInFull(run, context=self.get_serializer_context()).data
