"""REST: policies, the current setting, and its history."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.policies import POLICIES, Need, Preempts
from allocation.policies.parameters import Parameter
from insight_app.explain.policy_preview import preview_policy
from insight_app.explain.solve_slots import solve_slots
from insight_app.models import PolicyGuard
from jobs_app.permissions import StaffChanges
from jobs_app.submission.fields import Number
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import KINDS, PolicyDescription, describe_policies
from scheduler_app.policy.settings import (
    KEPT_FIELDS,
    LEAST_PART,
    LONGEST_S,
    choose_policy,
    inherited_parameters,
    lock_settings,
    parameter_fault,
    restore_policy,
    undo_choice,
    with_defaults,
)
from web.api.policy_effects import GuardAnswer, PreviewAnswer, guard_document, preview_document
from web.rest.bodies import DictOf, Strict, Text, body_of
from web.rest.choices import Choice
from web.rest.etags import IF_MATCH, IF_NONE_MATCH, refuse_stale
from web.rest.pagination import NewestFirst
from web.rest.representation import FIELDS, fields_wanted, single


class ParameterAnswer(serializers.Serializer[Any]):
    """One parameter of a policy."""

    kind = serializers.ChoiceField(list(KINDS.values()))
    default = serializers.JSONField(help_text="Default value: a number, a boolean or a name.")
    least = serializers.FloatField(allow_null=True, help_text="Lower bound; null if the parameter is not a number.")
    most = serializers.FloatField(allow_null=True, help_text="Upper bound; null if the parameter is not a number.")
    names = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Allowed names; null if it is not a choice.",
    )
    meaning = serializers.CharField()


class PolicyAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    summary = serializers.CharField()
    aims_at = serializers.CharField(help_text="What it is good for, in a few words.")
    preempts = serializers.ChoiceField([each.value for each in Preempts], help_text="When it stops a running job.")
    elastic = serializers.BooleanField(help_text="Whether it chooses how many GPUs an elastic job has.")
    needs = serializers.ListField(
        child=serializers.ChoiceField([each.value for each in Need]), help_text="What its decisions depend on."
    )
    choose_when = serializers.CharField()
    sources = serializers.ListField(child=serializers.CharField(), help_text="References for the policy's formula.")
    parameters = serializers.DictField(child=ParameterAnswer(), help_text="Parameters by name.")
    current = serializers.BooleanField()


class SettingAnswer(serializers.ModelSerializer[PolicySetting]):
    """A policy setting. `id` and `created_at` are null for the defaults, which apply until a policy is chosen."""

    id = serializers.IntegerField(allow_null=True)
    parameters = serializers.SerializerMethodField()
    created_at = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)

    class Meta:
        model = PolicySetting
        fields = ("id", "policy", "parameters", *KEPT_FIELDS, "note", "created_at", "created_by")
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_parameters(self, setting: PolicySetting) -> dict[str, Any]:
        """All parameters of the policy."""
        return with_defaults(setting.policy, setting.parameters)

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_created_at(self, setting: PolicySetting) -> Any:
        return serializers.DateTimeField().to_representation(setting.created_at) if setting.pk else None


MOST_PARAMETERS = 100


class SettingSpec(Strict):
    """New policy setting. Fields that are left out stay; the parameters of another policy have their defaults."""

    policy = Choice(list(POLICIES))
    parameters = DictOf(
        most=MOST_PARAMETERS,
        required=False,
        help_text="Values by name; parameters that are left out have their defaults.",
    )
    round_length_s = Number(required=False, min_value=1, max_value=LONGEST_S)
    min_run_s = Number(required=False, min_value=0, max_value=LONGEST_S)
    solve_limit_part = Number(
        required=False,
        min_value=LEAST_PART,
        max_value=1,
        help_text="Solver time limit as a fraction of the round; then the best certified decision is used.",
    )
    cpu_memory = Choice(
        PolicySetting.CpuMemory.choices,
        required=False,
        help_text="How CPUs and memory are shared that no job asks for.",
    )
    note = Text(required=False, allow_blank=True, max_length=300, default="", help_text="Reason, shown in the history.")

    def validate_parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        """Validate each parameter; an unknown policy is reported at its own field."""
        faults = {name: parameter_fault(self.initial_data.get("policy"), name, value) for name, value in given.items()}
        if found := {name: [reason] for name, reason in faults.items() if reason}:
            raise serializers.ValidationError(found)
        return given


class UndoSpec(Strict):
    note = Text(required=False, allow_blank=True, max_length=250, default="", help_text="Reason, for the history.")


class PolicyViewSet(viewsets.GenericViewSet[PolicySetting]):
    """Policies and the current policy setting."""

    queryset = PolicySetting.objects.select_related("created_by")
    serializer_class = SettingAnswer
    permission_classes = (StaffChanges,)
    pagination_class = NewestFirst
    lookup_value_regex = r"\d{1,18}"

    @extend_schema(responses=PolicyAnswer(many=True), parameters=[FIELDS])
    def list(self, request: Request) -> Response:
        """List policies."""
        current = PolicySetting.objects.current().policy
        policies = [_answer(policy, current) for policy in describe_policies()]
        NewestFirst().get_page_size(request)  # all fit on one page; an invalid limit or cursor is still refused
        wanted = fields_wanted(request, policies[0])
        return Response({"next": None, "results": [{name: p[name] for name in p if name in wanted} for p in policies]})

    @extend_schema(responses=SettingAnswer, parameters=[FIELDS, IF_NONE_MATCH])
    @action(detail=False, methods=["get"])
    def current(self, request: Request) -> Response:
        """Get the current policy setting."""
        return single(request, SettingAnswer(PolicySetting.objects.current()).data)

    @extend_schema(request=SettingSpec, responses=SettingAnswer, parameters=[IF_MATCH])
    @current.mapping.put
    def choose(self, request: Request) -> Response:
        """Change the current policy setting. It applies from the next round on. Staff only."""
        asked = body_of(request, SettingSpec)  # before the lock, which on SQLite is everybody's
        with transaction.atomic():
            now = lock_settings()
            refuse_stale(request, lambda: SettingAnswer(now).data)
            chosen = choose_policy(_merged(asked, now), actor=_person(request))
        return single(request, SettingAnswer(chosen).data)

    @extend_schema(request=SettingSpec, responses=PreviewAnswer)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """Preview the next round under another setting.

        Beside it stands the next round under the current setting. Nothing is written. Staff only.
        """
        asked = _merged(body_of(request, SettingSpec), PolicySetting.objects.current())
        with solve_slots.slot_for(_person(request)):
            return Response(preview_document(preview_policy(asked, timezone.now())))

    @extend_schema(responses=GuardAnswer)
    @action(detail=False, methods=["get"])
    def guard(self, request: Request) -> Response:
        """Get the effects of the current policy setting.

        They are compared with what the policy lab predicted, once a minute.
        """
        return Response(GuardAnswer(guard_document(PolicyGuard.objects.current())).data)

    @extend_schema(responses=SettingAnswer(many=True))
    @action(detail=False, methods=["get"])
    def history(self, request: Request) -> Response:
        """List policy settings of the past. Newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(SettingAnswer(page, many=True).data)

    @extend_schema(request=None, responses={201: SettingAnswer})
    @action(detail=False, methods=["post"], url_path=r"history/(?P<pk>\d{1,18})/choose")
    def choose_again(self, request: Request, pk: str) -> Response:
        """Make an earlier policy setting current again. Staff only."""
        setting = restore_policy(get_object_or_404(PolicySetting, pk=pk), actor=_person(request))
        return single(request, SettingAnswer(setting).data, status.HTTP_201_CREATED)

    @extend_schema(request=UndoSpec, responses={201: SettingAnswer})
    @action(detail=False, methods=["post"], url_path=r"history/(?P<pk>\d{1,18})/undo")
    def undo(self, request: Request, pk: str) -> Response:
        """Undo the choice of a policy setting.

        The one before it is current again; refused if another has been chosen since, or if the service began with it.
        Staff only.
        """
        text = body_of(request, UndoSpec)["note"]
        setting = undo_choice(get_object_or_404(PolicySetting, pk=pk), actor=_person(request), note=text)
        return single(request, SettingAnswer(setting).data, status.HTTP_201_CREATED)


def _merged(asked: Mapping[str, Any], now: PolicySetting) -> PolicySetting:
    """The setting that is asked for; what is left out is as now."""
    kept = {name: getattr(now, name) for name in KEPT_FIELDS}
    given = asked.get("parameters")
    parameters = inherited_parameters(asked["policy"], given, before=now.policy, kept=now.parameters)
    return PolicySetting(**{**kept, **asked, "parameters": parameters})


def _answer(policy: PolicyDescription, current: str) -> dict[str, Any]:
    return {
        "name": policy.name,
        "summary": policy.summary,
        "aims_at": policy.aims_at,
        "preempts": policy.preempts,
        "elastic": policy.elastic,
        "needs": list(policy.needs),
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
    user: User = request.user  # type: ignore[assignment]  # `StaffChanges` admits no other
    return user
