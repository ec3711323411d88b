"""REST: members of a team, their limits, and invitations: for its leads and administrators."""

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.fairness.usage_by_member import members_of
from jobs_app.errors import NotAllowed
from jobs_app.invitations import invite, mail_invitation
from jobs_app.models import Team
from jobs_app.models.team import LEAST_IDLE_MIN, MOST_IDLE_MIN
from jobs_app.permissions import NotForJobs, caller, is_administrator
from jobs_app.submission.fields import MOST_GPUS
from jobs_app.teams import add_member, change_limits, remove_member, set_lead
from web.rest.bodies import Strict, Text, body_of


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


class MemberLimits(Strict):
    """Limits of each member; both are replaced."""

    max_gpus_per_member = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, allow_null=True, help_text="Most GPUs at once; null: no limit."
    )
    idle_gpus_limit_min = serializers.IntegerField(
        min_value=LEAST_IDLE_MIN,
        max_value=MOST_IDLE_MIN,
        allow_null=True,
        help_text="Minutes without use of its GPUs after which a job is stopped; null: its owner is only warned.",
    )


class InvitationSpec(Strict):
    """A person who has no account yet."""

    username = Text(max_length=150, help_text="To log in with.")
    email = serializers.EmailField(
        required=False, allow_blank=True, default="", help_text="Where the invitation is sent, if the site sends mail."
    )
    lead = serializers.BooleanField(default=False, help_text="Whether the new member manages the team.")


class InvitationAnswer(serializers.Serializer[Any]):
    """An invitation; no other response contains its link, which is good for seven days."""

    username = serializers.CharField()
    link = serializers.CharField(help_text="With which the person chooses a password, once.")
    mailed = serializers.BooleanField()


class TeamMembersView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(responses=MembersAnswer)
    def get(self, request: Request, name: str) -> Response:
        """List members of a team. Those with the most GPU time of the last seven days are first."""
        return _shown(_visible(request, name))


class TeamMemberView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(request=MemberSpec, responses=MembersAnswer)
    def put(self, request: Request, name: str, username: str) -> Response:
        """Add a member to a team, or change the role of one. Leads of the team and staff only."""
        team, asked = _managed(request, name), body_of(request, MemberSpec)
        with transaction.atomic():
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


class MemberLimitsView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(request=MemberLimits, responses=MemberLimits)
    def put(self, request: Request, name: str) -> Response:
        """Set the limits of a team's members. Leads of the team and staff only."""
        team, limits = _managed(request, name), body_of(request, MemberLimits)
        change_limits(team, limits, actor=caller(request))
        return Response(limits)


class InvitationsView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(request=InvitationSpec, responses={201: InvitationAnswer})
    def post(self, request: Request, name: str) -> Response:
        """Invite a person into a team. Only this response contains the link. Leads of the team and staff only.

        An invitation that has not been accepted is made anew, with another link, by whoever made it or by staff.
        """
        team, asked = _managed(request, name), body_of(request, InvitationSpec)
        user, text = invite(**asked, team=team, actor=caller(request), now=timezone.now())
        link = f"{request.build_absolute_uri(reverse('invitation'))}#{text}"
        answer = {"username": user.username, "link": link, "mailed": mail_invitation(user, link)}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


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
