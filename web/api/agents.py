"""REST: machines that may join, or have joined (`/agents`): administrators change them, members see their team's."""

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from connections_app.agents.join_agent import issue_join_token, revoke_agent
from connections_app.agents.program import runs_own_program
from connections_app.agents.updates import try_update_again, update_fault_of
from connections_app.models import Agent
from jobs_app.models import Team
from jobs_app.permissions import NotForJobs, caller, is_administrator
from web.api.nodes import NAME
from web.rest.bodies import ObjectByName, Strict, Text, body_of
from web.rest.pagination import ByName
from web.rest.representation import ShowMany, ShowOne

LONGEST_HOURS = 24 * 30


class AdministratorsChange(NotForJobs):
    message = "Only an administrator may do this, with a token of scope admin."

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and (
            view.action in ("list", "retrieve") or is_administrator(request)
        )


class AgentSpec(Strict):
    """A machine that is to join."""

    name = Text(max_length=40, help_text="Of its node and of its engine: lower-case letters, digits, '.', '_', '-'.")
    trusted = serializers.BooleanField(default=False, help_text="Whether it may have secrets of jobs.")
    site = serializers.BooleanField(
        default=False,
        help_text="Whether it is a server of the site, which is trusted and shares gangs with the others.",
    )
    team = ObjectByName(
        "name",
        queryset=Team.objects.all(),
        required=False,
        help_text="Whose machine it is: its members see it on the page Cluster.",
    )
    hours = serializers.IntegerField(
        default=24, min_value=1, max_value=LONGEST_HOURS, help_text="For so long the join token can be used."
    )


class FindingSerializer(serializers.Serializer[Any]):
    """Result of one check of a server."""

    name = serializers.CharField()
    passed = serializers.BooleanField()
    said = serializers.CharField(help_text="What was found, with the remedy of what is wrong.")


class AgentAnswer(serializers.ModelSerializer[Agent]):
    """A machine: `joined_at` is null until it has used its join token."""

    team = serializers.CharField(source="team.name", allow_null=True, default=None, read_only=True)
    state = serializers.SerializerMethodField(
        help_text="`invited` and `expired` before it has joined; `connected`, `silent`, `left`, `revoked`."
    )
    heard_at = serializers.DateTimeField(allow_null=True, read_only=True)
    up_to_date = serializers.SerializerMethodField(
        help_text="Whether it runs the program that the service serves; null: from sources, or it has not said so."
    )
    update_fault = serializers.SerializerMethodField(
        help_text="Why it has not changed to the program of the service; empty: it has, or was not told to."
    )
    findings = FindingSerializer(
        many=True, read_only=True, help_text="Checks of a server of the site, which its agent repeats every minute."
    )

    class Meta:
        model = Agent
        fields: tuple[str, ...] = (
            "name",
            "trusted",
            "site",
            "team",
            "state",
            "created_at",
            "join_expires_at",
            "joined_at",
            "heard_at",
            "release",
            "python",
            "up_to_date",
            "update_fault",
            "checked_at",
            "findings",
            "left_at",
            "revoked_at",
        )
        read_only_fields: tuple[str, ...] = fields

    def get_up_to_date(self, agent: Agent) -> bool | None:
        return runs_own_program(agent)

    def get_update_fault(self, agent: Agent) -> str:
        return update_fault_of(agent, timezone.now())

    def get_state(self, agent: Agent) -> str:
        return agent.state_at(timezone.now()).value


class NewAgent(AgentAnswer):
    token = serializers.CharField(read_only=True, help_text="The join token, shown this once.")

    class Meta(AgentAnswer.Meta):
        fields = (*AgentAnswer.Meta.fields, "token")
        read_only_fields = fields


@extend_schema_view(
    list=extend_schema(summary="List machines that join"), retrieve=extend_schema(summary="Get a machine that joins")
)
class AgentViewSet(ShowMany[Agent], ShowOne[Agent], viewsets.GenericViewSet[Agent]):
    """Machines that may join or have joined, sorted by name; those of other teams are for administrators."""

    serializer_class = AgentAnswer
    permission_classes = (AdministratorsChange,)
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = NAME

    def get_queryset(self) -> QuerySet[Agent]:
        seen = Agent.objects.select_related("team")
        return seen if is_administrator(self.request) else seen.filter(team__members=caller(self.request).pk)

    @extend_schema(summary="Make a join token", request=AgentSpec, responses={201: NewAgent})
    def create(self, request: Request) -> Response:
        """Make a token with which one machine may join as the node of this name. It is shown once.

        For a name that has joined, another machine may take its place with it.
        """
        asked = body_of(request, AgentSpec)
        agent, text = issue_join_token(
            asked["name"],
            trusted=asked["trusted"],
            site=asked["site"],
            actor=caller(request),
            now=timezone.now(),
            lifetime=timedelta(hours=asked["hours"]),
            team=asked.get("team"),
        )
        return Response({**AgentAnswer(agent).data, "token": text}, status=status.HTTP_201_CREATED)

    @extend_schema(summary="Revoke a machine's token", responses={204: None})
    def destroy(self, request: Request, name: str) -> Response:
        """Revoke the token of a machine, and its join token: it stops its jobs, which are queued again."""
        revoke_agent(self.get_object(), actor=caller(request), now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(summary="Try a server's update again", request=None, responses={200: AgentAnswer})
    @action(detail=True, methods=["post"], url_path="update")
    def try_update(self, request: Request, name: str) -> Response:
        """Have a server try the change to the program of the service again, which failed there.

        409 for one that runs it already, or was not told to change yet.
        """
        try_update_again(self.get_object(), actor=caller(request))
        return Response(AgentAnswer(self.get_object()).data)
