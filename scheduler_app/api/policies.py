"""Policies over REST: which there are, which one counts, and which ones did."""

from inspect import getdoc
from typing import Any

from django.contrib.auth.models import User
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.parameters import Policy
from allocation.policies import POLICIES
from cluster_app.pagination import NewestFirst
from cluster_app.representation import FIELDS, IF_MATCH, IF_NONE_MATCH, fields_wanted, refuse_stale, single
from jobs_app.fields import Number, Strict
from jobs_app.permissions import StaffChanges
from scheduler_app.api.bodies import Words, body_of
from scheduler_app.models import PolicySetting
from scheduler_app.services import choose_again, choose_policy

LONGEST_S = 7 * 86_400


class PolicyAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    summary = serializers.CharField()
    parameters = serializers.DictField(help_text="Name → what it does; empty: it has none.")
    current = serializers.BooleanField()


class SettingAnswer(serializers.ModelSerializer[PolicySetting]):
    """How rounds are decided. `id` and `created_at` are null while nobody has chosen: then the defaults count."""

    id = serializers.IntegerField(allow_null=True)
    created_at = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)

    class Meta:
        model = PolicySetting
        fields = ("id", "policy", "parameters", "round_length_s", "min_run_s", "note", "created_at", "created_by")
        read_only_fields = fields

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_created_at(self, setting: PolicySetting) -> Any:
        return serializers.DateTimeField().to_representation(setting.created_at) if setting.pk else None


class SettingSpec(Strict):
    """What is left out stays as it is."""

    policy = serializers.ChoiceField(list(POLICIES))
    parameters = serializers.DictField(required=False)
    round_length_s = Number(required=False, min_value=1, max_value=LONGEST_S)
    min_run_s = Number(required=False, min_value=0, max_value=LONGEST_S)
    note = Words(required=False, allow_blank=True, max_length=300, default="", help_text="Why.")

    def validate_parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        if given:
            raise serializers.ValidationError(f"No policy has parameters: leave out {', '.join(given)}.")
        return given


class PolicyViewSet(viewsets.GenericViewSet[PolicySetting]):
    """The policies, and the setting by which rounds are decided."""

    queryset = PolicySetting.objects.select_related("created_by")
    serializer_class = SettingAnswer
    permission_classes = (StaffChanges,)
    pagination_class = NewestFirst
    lookup_value_regex = r"\d{1,18}"

    @extend_schema(responses=PolicyAnswer(many=True), parameters=[FIELDS])
    def list(self, request: Request) -> Response:
        """Every policy there is."""
        current = PolicySetting.objects.current().policy
        policies = [
            {"name": name, "summary": _summary(policy), "parameters": {}, "current": name == current}
            for name, policy in POLICIES.items()
        ]
        NewestFirst().get_page_size(request)  # they all fit, but a limit that is none is refused, as everywhere
        wanted = fields_wanted(request, policies[0])
        return Response({"next": None, "results": [{name: p[name] for name in p if name in wanted} for p in policies]})

    @extend_schema(responses=SettingAnswer, parameters=[FIELDS, IF_NONE_MATCH])
    @action(detail=False, methods=["get"])
    def current(self, request: Request) -> Response:
        """The setting that counts."""
        return single(request, SettingAnswer(PolicySetting.objects.current()).data)

    @extend_schema(request=SettingSpec, responses=SettingAnswer, parameters=[IF_MATCH])
    @current.mapping.put
    def choose(self, request: Request) -> Response:
        """From now on decide so. For staff."""
        asked, now = body_of(request, SettingSpec), PolicySetting.objects.current()
        refuse_stale(request, lambda: SettingAnswer(now).data)
        kept = {name: getattr(now, name) for name in ("parameters", "round_length_s", "min_run_s")}
        setting = PolicySetting(**(kept | asked))
        return single(request, SettingAnswer(choose_policy(setting, actor=_person(request))).data)

    @extend_schema(responses=SettingAnswer(many=True))
    @action(detail=False, methods=["get"])
    def history(self, request: Request) -> Response:
        """What counted when, the newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(SettingAnswer(page, many=True).data)

    @extend_schema(request=None, responses={201: SettingAnswer})
    @action(detail=False, methods=["post"], url_path=r"history/(?P<pk>\d{1,18})/choose")
    def choose_again(self, request: Request, pk: str) -> Response:
        """Go back to a setting of the past. For staff."""
        setting = choose_again(get_object_or_404(PolicySetting, pk=pk), actor=_person(request))
        return single(request, SettingAnswer(setting).data, status.HTTP_201_CREATED)


def _summary(policy: Policy) -> str:
    return (getdoc(policy) or "").partition("\n")[0]


def _person(request: Request) -> User:
    user: User = request.user  # type: ignore[assignment]  # `StaffChanges` lets nobody else in
    return user
