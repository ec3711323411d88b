"""REST: members of a team (`/teams/{name}/members`), whom its leads and administrators add, remove and make leads."""

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs_app.errors import NotAllowed
from jobs_app.models import Team
from jobs_app.permissions import NotForJobs, caller, is_administrator
from jobs_app.teams import add_member, remove_member, set_lead
from rest.bodies import Strict, body_of
from scheduler_app.fairness.team_members import members_of


class MemberAnswer(serializers.Serializer[Any]):
    """A member, or somebody who was one and whose jobs are the team's still."""

    username = serializers.CharField(source="user.username")
    is_member = serializers.BooleanField()
    is_lead = serializers.BooleanField(help_text="Manages members and their limits.")
    invited = serializers.BooleanField(help_text="The invitation has not been accepted.")
    gpus = serializers.IntegerField(help_text="GPUs in use now.")
    gpu_hours = serializers.FloatField(help_text="Over the last seven days.")
    running = serializers.IntegerField(help_text="Running jobs.")
    waiting = serializers.IntegerField(help_text="Waiting jobs.")


class MembersAnswer(serializers.Serializer[Any]):
    members = MemberAnswer(many=True)


class MemberSpec(Strict):
    """Role of a member."""

    lead = serializers.BooleanField(
        required=False, help_text="Whether this member manages the team. Default: as it is; for a new member, no."
    )


class TeamMembersView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(responses=MembersAnswer)
    def get(self, request: Request, name: str) -> Response:
        """List members of a team. Those with the most GPU time of the last seven days are first."""
        return _shown(_visible(request, name))


class TeamMemberView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(request=MemberSpec, responses=MembersAnswer)
    @transaction.atomic
    def put(self, request: Request, name: str, username: str) -> Response:
        """Add a member to a team, or change the role of one. Leads of the team and staff only."""
        team, asked = _managed(request, name), body_of(request, MemberSpec)
        user = add_member(team, username, actor=caller(request))
        if "lead" in asked:
            set_lead(team, user, lead=asked["lead"], actor=caller(request))
        return _shown(team)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str, username: str) -> Response:
        """Remove a member from a team. Jobs of the member go on. Leads of the team and staff only."""
        team = _managed(request, name)
        remove_member(team, get_object_or_404(User, username=username, teams=team), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _visible(request: Request, name: str) -> Team:
    return get_object_or_404(Team.objects.visible_to(caller(request)), name=name)


def _managed(request: Request, name: str) -> Team:
    """The team; refuses an administrator's token that is not of scope admin. The services refuse members."""
    team = _visible(request, name)
    if caller(request).is_staff and not is_administrator(request):
        raise NotAllowed("Members of a team are changed with a token of scope admin.")
    return team


def _shown(team: Team) -> Response:
    return Response(MembersAnswer({"members": members_of(team, timezone.now())}).data)
