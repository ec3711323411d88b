"""Team page: members with what each uses, limits, quotas and budget; its leads manage members and their limits."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from accounting_app.fairness.budgets import read_budgets
from accounting_app.fairness.quota_ledger import quota_reports
from accounting_app.fairness.usage_by_member import WINDOW, members_of
from accounting_app.fairness.usage_ledger import team_shares
from insight_app.explain.start_stages import team_starts
from jobs_app.errors import NotAccepted, NotAllowed
from jobs_app.forms import InviteMemberForm, MemberForm, MemberLimitsForm
from jobs_app.invitations import invite, mail_invitation
from jobs_app.models import Team
from jobs_app.teams import add_member, change_limits, may_manage, remove_member, set_lead
from web.pages.base import SignedInRequest, posted, show_error


@login_required
@require_safe
def teams_page(request: SignedInRequest) -> HttpResponse:
    """The user's teams; all for staff."""
    teams = Team.objects.visible_to(request.user).current()
    counted = Team.objects.filter(pk__in=teams.values("pk")).annotate(people=Count("members"))
    return render(request, "pages/teams.html", {"teams": counted.prefetch_related("leads")})


@login_required
@never_cache
@require_safe
def team_page(request: SignedInRequest, name: str) -> HttpResponse:
    return _show(request, get_object_or_404(Team.objects.visible_to(request.user), name=name))


@login_required
@never_cache
@require_POST
def act_on_team(request: SignedInRequest, name: str, verb: str) -> HttpResponse:
    """Change members, roles or limits. Leads of the team and staff only."""
    team = get_object_or_404(Team.objects.visible_to(request.user), name=name)
    if not may_manage(request.user, team):
        raise PermissionDenied
    match verb:
        case "add":
            return _add(request, team)
        case "invite":
            return _invite(request, team)
        case "limits":
            return _limit(request, team)
        case "remove" | "make-lead" | "end-lead":
            return _act_on_member(request, team, verb)
    raise Http404


def _add(request: SignedInRequest, team: Team) -> HttpResponse:
    form = MemberForm(request.POST)
    if form.is_valid():
        try:
            user = add_member(team, form.cleaned_data["username"], actor=request.user)
            messages.success(request, f"{user.username} is a member of {team}.")
            return redirect("team", team.name)
        except NotAccepted as error:
            form.add_error(error.field, str(error))
    return _show(request, team, adding=form)


def _invite(request: SignedInRequest, team: Team) -> HttpResponse:
    """Invite a person; the answer is the only page that shows the link."""
    form = InviteMemberForm(request.POST)
    if form.is_valid():
        try:
            user, text = invite(**form.cleaned_data, team=team, actor=request.user, now=timezone.now())
            link = f"{request.build_absolute_uri(reverse('invitation'))}#{text}"
            return _show(request, team, invited=user, link=link, mailed=mail_invitation(user, link))
        except NotAccepted as error:
            form.add_error(error.field, str(error))
    return _show(request, team, inviting=form)


def _limit(request: SignedInRequest, team: Team) -> HttpResponse:
    form = MemberLimitsForm(request.POST, instance=Team.objects.get(pk=team.pk))
    if form.is_valid():
        try:
            change_limits(team, form.cleaned_data, actor=request.user)
            messages.success(request, "The limits hold from the next round on.")
            return redirect("team", team.name)
        except NotAccepted as error:
            form.add_error(error.field, str(error))
    return _show(request, team, limiting=form)


def _act_on_member(request: SignedInRequest, team: Team, verb: str) -> HttpResponse:
    user = get_object_or_404(User, username=posted(request, "username"), teams=team)
    try:
        if verb == "remove":
            remove_member(team, user, actor=request.user)
            messages.success(request, f"{user.username} is no longer a member of {team}.")
        else:
            set_lead(team, user, lead=verb == "make-lead", actor=request.user)
            messages.success(request, f"{user.username} is {'a lead' if verb == 'make-lead' else 'no lead'} of {team}.")
    except (NotAccepted, NotAllowed) as error:
        show_error(request, error)
    seen = Team.objects.visible_to(request.user).filter(pk=team.pk).exists()
    return redirect("team", team.name) if seen else redirect("teams")


def _show(request: SignedInRequest, team: Team, **forms_of: Any) -> HttpResponse:
    now, manages = timezone.now(), may_manage(request.user, team)
    budget = read_budgets(now, [team.pk])
    context: dict[str, Any] = {
        "team": team,
        "members": members_of(team, now),
        "manages": manages,
        "shares": [share for share in team_shares(now - WINDOW) if share.team == team.name],
        "quotas": [report for report in quota_reports(request.user, now) if report.quota.team_id == team.pk],
        "starts": team_starts(team, now),
        "budgets": list(budget.values()),
    }
    if manages:
        blank: dict[str, forms.BaseForm] = {
            "adding": MemberForm(),
            "inviting": InviteMemberForm(),
            "limiting": MemberLimitsForm(instance=team),
        }
        context |= blank | forms_of
    return render(request, "pages/team.html", context)
