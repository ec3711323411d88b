"""Memberships of teams granted by groups of an identity provider; only granted ones are taken back."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.models import GroupGrant, Team


@dataclass(frozen=True)
class GrantedTeams:
    """Grants by the groups of a person: teams by name, and whether they are an administrator."""

    teams: frozenset[str] = frozenset()
    administrator: bool = False


def granted_by(groups: Collection[str], teams_of: Mapping[str, str], administrators: str) -> GrantedTeams:
    """Teams of these groups: those that the mapping names or, without a mapping, those of the same names."""
    named = {teams_of[group] for group in groups if group in teams_of} if teams_of else set(groups)
    return GrantedTeams(frozenset(named), administrator=bool(administrators) and administrators in groups)


@transaction.atomic
def follow_groups(user: User, now: GrantedTeams) -> None:
    """Add new grants, and take back those whose group is missing.

    Memberships and rights that an administrator gave by hand stay.
    """
    before = _granted_before(user)
    known = {team.name: team for team in Team.objects.filter(name__in=before.teams | now.teams)}
    members = set(user.teams.filter(pk__in=[team.pk for team in known.values()]).values_list("name", flat=True))
    new = sorted(known.keys() & now.teams - members)
    gone = sorted(known.keys() & members & before.teams - now.teams)
    user.teams.add(*(known[name] for name in new))
    user.teams.remove(*(known[name] for name in gone))
    raised = _set_administrator(user, before, now)
    words = [*(f"+{name}" for name in new), *(f"-{name}" for name in gone), *raised]
    if words:
        note(Action.GROUPS_FOLLOW, actor=user, target=user.username, target_id=user.pk, message=", ".join(words))
    granted = frozenset(new) | (before.teams & now.teams & known.keys())
    administrator = now.administrator and (before.administrator or bool(raised))
    facts = {"teams": sorted(granted), "administrator": administrator}
    GroupGrant.objects.update_or_create(user=user, defaults=facts)


def _granted_before(user: User) -> GrantedTeams:
    row = GroupGrant.objects.select_for_update().filter(user=user).first()
    return GrantedTeams(frozenset(row.teams), administrator=row.administrator) if row else GrantedTeams()


def _set_administrator(user: User, before: GrantedTeams, now: GrantedTeams) -> list[str]:
    """Make the user an administrator, or take that back if it was granted; returns the change as text."""
    if now.administrator and not user.is_superuser:
        wanted, word = True, "+administrator"
    elif before.administrator and not now.administrator and user.is_superuser:
        wanted, word = False, "-administrator"
    else:
        return []
    user.is_staff = user.is_superuser = wanted
    user.save(update_fields=["is_staff", "is_superuser"])
    return [word]
