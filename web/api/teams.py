"""REST: teams, with their usage, shares, and quotas and budgets, which administrators set; retire and restore."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import Count, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from accounting_app.fairness.budgets import read_budgets
from accounting_app.fairness.quota_ledger import quota_reports
from accounting_app.fairness.team_limits import delete_budget, delete_quota, set_budget, set_quota
from accounting_app.fairness.usage_ledger import TeamShare, team_shares
from cluster_app.models import GpuType
from insight_app.explain.start_stages import CAUSES as STAGES
from insight_app.explain.start_stages import WINDOW as OF_STARTS
from insight_app.explain.start_stages import StageQuantiles, team_starts
from jobs_app.models import Budget, GpuClaim, Team, TeamQuota
from jobs_app.models.budget import LEAST_GPU_HOURS, MOST_GPU_HOURS
from jobs_app.models.team_quota import LENDS_MORE
from jobs_app.permissions import StaffChanges, caller
from jobs_app.submission.fields import MOST_GPUS, Number
from jobs_app.teams import restore_team, retire_team
from web.api.nodes import NAME
from web.rest.bodies import Nothing, Strict, body_of
from web.rest.choices import Choice
from web.rest.pagination import ByName
from web.rest.representation import ShowMany, ShowOne, single

WINDOW = timedelta(days=7)
QUOTA = rf"quotas/(?P<gpu_type>{NAME})"


class ShareAnswer(serializers.Serializer[Any]):
    """Entitled and delivered fractions of the cluster's work over the window, and how far the team is behind now."""

    window_seconds = serializers.IntegerField()
    entitled = serializers.FloatField()
    delivered = serializers.FloatField()
    backlog_gpu_hours = serializers.FloatField(
        help_text="Work that the team was entitled to lately and did not receive; older work counts less."
    )


class QuotaAnswer(serializers.Serializer[Any]):
    """Quota of a team on a GPU type: its limits, its use now, and what it costs in waiting."""

    gpu_type = serializers.CharField(source="quota.gpu_type.name")
    gpus = serializers.IntegerField(source="quota.gpus", help_text="Guaranteed while the team has jobs for them.")
    borrowing_limit = serializers.IntegerField(
        source="quota.borrowing_limit", allow_null=True, help_text="Most GPUs beyond the quota; null: no limit."
    )
    lending_limit = serializers.IntegerField(
        source="quota.lending_limit", allow_null=True, help_text="Most GPUs of the quota that others use; null: all."
    )
    used = serializers.IntegerField(help_text="GPUs of the type that the team has now.")
    borrowed = serializers.IntegerField(help_text="Those beyond the quota.")
    borrowed_by_others = serializers.IntegerField(help_text="GPUs of the quota that other teams have now.")
    mean_gpus = serializers.FloatField(allow_null=True, help_text="Over the last day; null: nothing is recorded.")
    waiting_hours_per_day = serializers.FloatField(
        source="waiting_h",
        allow_null=True,
        help_text="Hours of waiting a day, over all jobs, that one more GPU in the quota would save: its shadow price, "
        "the mean of the last day. 0: the quota keeps no job waiting beside idle GPUs. Null: not known.",
    )


class BudgetAnswer(serializers.Serializer[Any]):
    """Budget of a team in the calendar period (UTC) that goes on, in reference GPU-hours: weighted by speed, an hour on
    the cluster's average GPU counts as 1."""

    kind = serializers.ChoiceField(
        Budget.Kind.choices,
        help_text="soft: the team's weight falls; hard: once it is used up, waiting jobs wait for the next period.",
    )
    period = serializers.ChoiceField(Budget.Period.choices)
    gpu_hours = serializers.FloatField()
    used_gpu_hours = serializers.FloatField()
    began_at = serializers.DateTimeField()
    resets_at = serializers.DateTimeField()
    is_used_up = serializers.BooleanField()
    expected_gpu_hours = serializers.FloatField(
        allow_null=True, help_text="Use at the end of the period at its pace so far; null: it has just begun."
    )
    used_up_at = serializers.DateTimeField(
        allow_null=True, help_text="When it is used up at that pace; null: it lasts, or is used up."
    )
    weight_part = serializers.FloatField(help_text="Part of its weight that the team has now, 1 unless it is soft.")


class QuotaSpec(Strict):
    """Quota of a team on a GPU type."""

    gpus = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, help_text="Guaranteed while the team has jobs for them."
    )
    borrowing_limit = serializers.IntegerField(
        min_value=0,
        max_value=MOST_GPUS,
        allow_null=True,
        default=None,
        help_text="Most GPUs beyond the quota; null: no limit.",
    )
    lending_limit = serializers.IntegerField(
        min_value=0,
        max_value=MOST_GPUS,
        allow_null=True,
        default=None,
        help_text="Most GPUs of the quota that others use; null: all.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["lending_limit"] is not None and attrs["lending_limit"] > attrs["gpus"]:
            raise serializers.ValidationError({"lending_limit": LENDS_MORE})
        return attrs


class BudgetSpec(Strict):
    """Budget of a team, in reference GPU-hours per calendar period of UTC."""

    gpu_hours = Number(min_value=LEAST_GPU_HOURS, max_value=MOST_GPU_HOURS)
    period = Choice(Budget.Period.choices, default=Budget.Period.MONTH.value)
    kind = Choice(Budget.Kind.choices, default=Budget.Kind.SOFT.value)


class TeamAnswer(serializers.ModelSerializer[Team]):
    members: Any = serializers.SlugRelatedField(slug_field="username", many=True, read_only=True)
    leads: Any = serializers.SlugRelatedField(
        slug_field="username", many=True, read_only=True, help_text="Members who manage the team."
    )
    max_files_gib = serializers.IntegerField(
        source="files_limit_gib", allow_null=True, help_text="Limit of `files_bytes`; null: none."
    )
    files_bytes = serializers.IntegerField(
        help_text="Files of ended jobs on disk, added up once an hour; those of a job are measured within two hours "
        "after its end."
    )
    gpus_in_use = serializers.SerializerMethodField()
    share = serializers.SerializerMethodField()
    quotas = serializers.SerializerMethodField(help_text="On GPU types; types without one are not limited by it.")
    budget = serializers.SerializerMethodField()

    class Meta:
        model = Team
        fields = (
            "name",
            "weight",
            "max_job_weight",
            "max_gpus",
            "max_gpus_per_member",
            "max_code_mib",
            "max_files_gib",
            "files_bytes",
            "idle_gpus_limit_min",
            "members",
            "leads",
            "retired_at",
            "gpus_in_use",
            "share",
            "quotas",
            "budget",
        )
        read_only_fields = fields

    def get_gpus_in_use(self, team: Team) -> int:
        return int(self.context["gpus_in_use"].get(team.pk, 0))

    @extend_schema_field(ShareAnswer)
    def get_share(self, team: Team) -> dict[str, float]:
        share: TeamShare | None = self.context["shares"].get(team.name)
        figures = ("entitled", "delivered", "backlog_gpu_hours")
        return {"window_seconds": int(WINDOW.total_seconds())} | {name: getattr(share, name, 0.0) for name in figures}

    @extend_schema_field(QuotaAnswer(many=True))
    def get_quotas(self, team: Team) -> list[dict[str, Any]]:
        reports = [report for report in self.context["quotas"] if report.quota.team_id == team.pk]
        return [dict(QuotaAnswer(report).data) for report in reports]

    @extend_schema_field(BudgetAnswer(allow_null=True))
    def get_budget(self, team: Team) -> dict[str, Any] | None:
        found = self.context["budgets"].get(team.pk)
        return dict(BudgetAnswer(found).data) if found else None


class StartStageAnswer(serializers.Serializer[StageQuantiles]):
    """A stage of the team's starts: claim, launch, code, setup, then program, restore and warm-up, or first step."""

    stage = serializers.CharField(help_text="; ".join(f"{name}: {cause}" for name, cause in STAGES.items()))
    restart = serializers.BooleanField(help_text="Of attempts after a job's first.")
    starts = serializers.IntegerField()
    p50_seconds = serializers.FloatField(source="p50_s")
    p90_seconds = serializers.FloatField(source="p90_s")


class StartsAnswer(serializers.Serializer[Any]):
    """Where the starts of a team's attempts went that ended in the window."""

    window_seconds = serializers.IntegerField()
    stages = StartStageAnswer(many=True)


@extend_schema_view(list=extend_schema(summary="List teams"), retrieve=extend_schema(summary="Get a team"))
class TeamViewSet(ShowMany[Team], ShowOne[Team], viewsets.GenericViewSet[Team]):
    """Teams of the caller; all teams for staff."""

    queryset = Team.objects.none()
    serializer_class = TeamAnswer
    permission_classes = (StaffChanges,)
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = r"[\w.-]+"

    def get_queryset(self) -> QuerySet[Team]:
        teams = Team.objects.visible_to(caller(self.request))
        known = teams.current() if self.action == "list" else teams
        return known.prefetch_related("members", "leads")

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if getattr(self, "swagger_fake_view", False):
            return context
        held = GpuClaim.objects.holding().values_list("attempt__job__team").annotate(Count("pk")).order_by()
        shares = {share.team: share for share in team_shares(timezone.now() - WINDOW)}
        read = {
            "quotas": quota_reports(self.request.user, timezone.now()),  # type: ignore[arg-type]  # visitors are refused before
            "budgets": read_budgets(timezone.now()),
        }
        return {**context, "gpus_in_use": dict(held), "shares": shares, **read}

    @extend_schema(responses=StartsAnswer, summary="Get where a team's starts went")
    @action(detail=True, methods=["get"])
    def starts(self, request: Request, name: str) -> Response:
        """Median and 90 % quantile of the stages of the team's starts, of first ones and of restarts."""
        found = team_starts(self.get_object(), timezone.now())
        answer = {"window_seconds": int(OF_STARTS.total_seconds()), "stages": found}
        return Response(StartsAnswer(answer).data)

    @extend_schema(request=QuotaSpec, responses=TeamAnswer, summary="Set a quota of a team")
    @action(detail=True, methods=["put"], url_path=QUOTA)
    def quota(self, request: Request, name: str, gpu_type: str) -> Response:
        """Give the team this quota on the GPU type, in place of the one that it has. Staff only."""
        team, kind = self.get_object(), GpuType.objects.filter(name=gpu_type).first()
        if kind is None:
            raise NotFound(f"There is no GPU type {gpu_type!r:.60}.")
        set_quota(team, kind, body_of(request, QuotaSpec), actor=caller(request))
        return self._shown()

    @extend_schema(responses={204: None}, summary="Delete a quota of a team")
    @quota.mapping.delete
    def delete_quota(self, request: Request, name: str, gpu_type: str) -> Response:
        """Delete it: the team uses the type as one without a quota. Staff only."""
        found = TeamQuota.objects.filter(team=self.get_object(), gpu_type__name=gpu_type).first()
        if found is None:
            raise NotFound(f"The team has no quota on {gpu_type!r:.60}.")
        delete_quota(found, actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=BudgetSpec, responses=TeamAnswer, summary="Set the budget of a team")
    @action(detail=True, methods=["put"])
    def budget(self, request: Request, name: str) -> Response:
        """Give the team this budget, in place of the one that it has. Staff only."""
        set_budget(self.get_object(), body_of(request, BudgetSpec), actor=caller(request))
        return self._shown()

    @extend_schema(responses={204: None}, summary="Delete the budget of a team")
    @budget.mapping.delete
    def delete_budget(self, request: Request, name: str) -> Response:
        """Delete it: nothing limits the team's work. Staff only."""
        found = Budget.objects.filter(team=self.get_object()).first()
        if found is None:
            raise NotFound("The team has no budget.")
        delete_budget(found, actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=Nothing, responses={202: TeamAnswer})
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, name: str) -> Response:
        """Retire a team. Nothing can be submitted for it any more; 409 while it has unfinished jobs. Staff only."""
        return self._done(retire_team)

    @extend_schema(request=Nothing, responses={202: TeamAnswer})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, name: str) -> Response:
        """Restore a retired team. It may submit again, with the members and limits that it had. Staff only."""
        return self._done(restore_team)

    def _done(self, verb: Callable[..., None]) -> Response:
        body_of(self.request, Nothing)
        verb(self.get_object(), actor=caller(self.request))
        return self._shown(status.HTTP_202_ACCEPTED)

    def _shown(self, code: int = status.HTTP_200_OK) -> Response:
        return single(self.request, self.get_serializer(self.get_object()).data, code)
