"""Management of teams: members, leads and limits of members; retirement and restoration."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import NotAccepted, NotAllowed, TeamInUse
from jobs_app.models import Job, Team

LIMITS_OF_LEADS = ("max_gpus_per_member", "idle_gpus_limit_min")
"""Columns that leads may set; the team's own limits and weight are set by administrators."""


def may_manage(user: User, team: Team) -> bool:
    """Whether the user is an administrator, or a member of the team and one of its leads."""
    return user.is_staff or Team.objects.managed_by(user).filter(pk=team.pk).exists()


def refuse_others(user: User, team: Team) -> None:
    """Raise `NotAllowed` for a user who may not manage the team."""
    if not may_manage(user, team):
        raise NotAllowed(f"Only leads of the team {team} and administrators may do this.")


@transaction.atomic
def add_member(team: Team, username: str, *, actor: User) -> User:
    """Add the account of this name to the team; raises `NotAccepted` if there is none.

    Not one whose invitation is open: whoever has that link would become a member.
    """
    refuse_others(actor, team)
    invited = Q(invitation__isnull=False, invitation__used_at=None)
    user = User.objects.exclude(invited).filter(username=username.strip(), is_active=True).first()
    if user is None:
        raise NotAccepted(
            "username", f"There is no account {username.strip()!r}: check the name, or invite the person."
        )
    if not team.members.filter(pk=user.pk).exists():
        team.members.add(user)
        _note(team, actor, f"member {user.username} added")
    return user


@transaction.atomic
def remove_member(team: Team, user: User, *, actor: User) -> None:
    """Remove a member, whose jobs go on; a lead may leave only if another lead stays."""
    _locked(team)
    refuse_others(actor, team)
    _refuse_last_lead(team, user, actor)
    if team.members.filter(pk=user.pk).exists():
        team.members.remove(user)
        team.leads.remove(user)
        _note(team, actor, f"member {user.username} removed")


@transaction.atomic
def set_lead(team: Team, user: User, *, lead: bool, actor: User) -> None:
    """Make a member a lead of the team, or a member without this role."""
    _locked(team)
    refuse_others(actor, team)
    if not team.members.filter(pk=user.pk).exists():
        raise NotAccepted("username", f"{user.username} is not a member of {team}: add this account first.")
    if lead == team.leads.filter(pk=user.pk).exists():
        return
    if lead:
        team.leads.add(user)
    else:
        _refuse_last_lead(team, user, actor)
        team.leads.remove(user)
    _note(team, actor, f"{user.username} is {'a lead' if lead else 'a member without the role lead'} now")


@transaction.atomic
def change_limits(team: Team, limits: Mapping[str, Any], *, actor: User) -> None:
    """Set limits of members, within those of the team."""
    locked = _locked(team)
    refuse_others(actor, team)
    changed = {name: limits[name] for name in LIMITS_OF_LEADS if limits[name] != getattr(locked, name)}
    most = locked.max_gpus
    if most is not None and (changed.get("max_gpus_per_member") or 0) > most:
        text = f"The team may use {most} GPUs at once: write {most} or less, or ask an administrator for more."
        raise NotAccepted("max_gpus_per_member", text)
    if changed:
        Team.objects.filter(pk=team.pk).update(**changed)
        _note(team, actor, ", ".join(f"{name} {_or_none(value)}" for name, value in changed.items()))


@transaction.atomic
def retire_team(team: Team, *, actor: AbstractBaseUser | None) -> None:
    """Retire a team without unfinished jobs: nothing can be submitted for it, and its quotas and windows end.

    Submissions that are under way have the row shared, as `refuse_retired_teams` does: they come first, and count.
    """
    Team.objects.select_for_update().get(pk=team.pk)
    if unfinished := Job.objects.unfinished().filter(team=team).count():
        raise TeamInUse(team.name, unfinished)
    if Team.objects.current().filter(pk=team.pk).update(retired_at=timezone.now()):
        note(Action.TEAM_RETIRE, actor=actor, target=team.name, target_id=team.pk)


@transaction.atomic
def restore_team(team: Team, *, actor: AbstractBaseUser | None) -> None:
    """Let a retired team submit jobs again, with the members, limits and quotas that it had."""
    if Team.objects.exclude(retired_at=None).filter(pk=team.pk).update(retired_at=None):
        note(Action.TEAM_RESTORE, actor=actor, target=team.name, target_id=team.pk)


def _locked(team: Team) -> Team:
    """The team as it is by now: nobody else changes its members, leads or limits before the transaction ends."""
    return Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _refuse_last_lead(team: Team, user: User, actor: User) -> None:
    """Raise `NotAllowed` if no other lead stays; a lead who is no member manages nothing. Call it under the lock."""
    others = team.leads.filter(teams=team).exclude(pk=user.pk).exists()
    if not others and not actor.is_staff and team.leads.filter(pk=user.pk).exists():
        raise NotAllowed(f"{user.username} is the only lead of {team}: make another member a lead first.")


def _note(team: Team, actor: User, message: str) -> None:
    note(Action.TEAM_CHANGE, actor=actor, target=team.name, target_id=team.pk, message=message)


def _or_none(value: object) -> object:
    return "without a limit" if value is None else value
