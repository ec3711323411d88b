"""Policies over REST: which there are, which one counts, and which ones did."""

from typing import Any

from django.contrib.auth.models import User
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.parameters import Parameter
from allocation.policies import POLICIES
from cluster_app.pagination import NewestFirst
from cluster_app.representation import FIELDS, IF_MATCH, IF_NONE_MATCH, fields_wanted, refuse_stale, single
from jobs_app.fields import Number, Strict
from jobs_app.permissions import StaffChanges
from scheduler_app.api.bodies import Words, body_of
from scheduler_app.choosing import KEPT, LEAST_PART, LONGEST_S, carried_over, in_full, refusal
from scheduler_app.describing import KINDS, Described, all_described
from scheduler_app.models import PolicySetting
from scheduler_app.services import choose_again, choose_policy


class ParameterAnswer(serializers.Serializer[Any]):
    """One parameter of a policy: what it takes, and what it does."""

    kind = serializers.ChoiceField(list(KINDS.values()))
    default = serializers.JSONField(help_text="As it is sent: a number, true or false, or a name.")
    least = serializers.FloatField(allow_null=True, help_text="Null: it is no number.")
    most = serializers.FloatField(allow_null=True)
    names = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="What it may be; null: it is not one of some names."
    )
    meaning = serializers.CharField()


class PolicyAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    summary = serializers.CharField()
    choose_when = serializers.CharField()
    sources = serializers.ListField(child=serializers.CharField(), help_text="Where its formula comes from.")
    parameters = serializers.DictField(child=ParameterAnswer(), help_text="By name; empty: it has none.")
    current = serializers.BooleanField()


class SettingAnswer(serializers.ModelSerializer[PolicySetting]):
    """How rounds are decided. `id` and `created_at` are null while nobody has chosen: then the defaults count."""

    id = serializers.IntegerField(allow_null=True)
    parameters = serializers.SerializerMethodField()
    created_at = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)

    class Meta:
        model = PolicySetting
        fields = ("id", "policy", "parameters", *KEPT, "note", "created_at", "created_by")
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_parameters(self, setting: PolicySetting) -> dict[str, Any]:
        """Those of the policy, in full."""
        return in_full(setting.policy, setting.parameters)

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_created_at(self, setting: PolicySetting) -> Any:
        return serializers.DateTimeField().to_representation(setting.created_at) if setting.pk else None


class SettingSpec(Strict):
    """What is left out stays as it is; but parameters belong to their policy, and another starts from its defaults."""

    policy = serializers.ChoiceField(list(POLICIES))
    parameters = serializers.DictField(
        required=False, help_text="Name → value; those of the policy that are not named here have their defaults."
    )
    round_length_s = Number(required=False, min_value=1, max_value=LONGEST_S)
    min_run_s = Number(required=False, min_value=0, max_value=LONGEST_S)
    solve_limit_part = Number(
        required=False,
        min_value=LEAST_PART,
        max_value=1,
        help_text="When so much of a round's length went into deciding, the best certified decision counts.",
    )
    note = Words(required=False, allow_blank=True, max_length=300, default="", help_text="Why.")

    def validate_parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        """An unknown policy is a fault of its own, and says nothing of parameters."""
        faults = {name: refusal(self.initial_data.get("policy"), name, value) for name, value in given.items()}
        if found := {name: [reason] for name, reason in faults.items() if reason}:
            raise serializers.ValidationError(found)
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
        policies = [_answer(policy, current) for policy in all_described()]
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
        kept = {name: getattr(now, name) for name in KEPT}
        asked["parameters"] = carried_over(
            asked["policy"], asked.get("parameters"), before=now.policy, kept=now.parameters
        )
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


def _answer(policy: Described, current: str) -> dict[str, Any]:
    return {
        "name": policy.name,
        "summary": policy.summary,
        "choose_when": policy.choose_when,
        "sources": list(policy.sources),
        "parameters": {parameter.name: _parameter(parameter) for parameter in policy.parameters},
        "current": policy.name == current,
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    is_number = parameter.kind in (float, int)
    return {
        "kind": KINDS[parameter.kind],
        "default": parameter.default,
        "least": parameter.least if is_number else None,
        "most": parameter.most if is_number else None,
        "names": list(parameter.names) or None,
        "meaning": parameter.meaning,
    }


def _person(request: Request) -> User:
    user: User = request.user  # type: ignore[assignment]  # `StaffChanges` lets nobody else in
    return user
