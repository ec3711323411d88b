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
    grant, _ = GroupGrant.objects.select_for_update().get_or_create(user=user)
    before, wanted = set(grant.teams.all()), set(Team.objects.filter(name__in=now.teams))
    members = set(user.teams.filter(pk__in=[team.pk for team in before | wanted]))
    new, gone = wanted - members, (before & members) - wanted
    user.teams.add(*new)
    user.teams.remove(*gone)
    grant.teams.set(new | (before & wanted))
    raised = _set_administrator(user, now.administrator, granted=grant.administrator)
    words = [*sorted(f"+{team}" for team in new), *sorted(f"-{team}" for team in gone), *raised]
    if words:
        note(Action.GROUPS_FOLLOW, actor=user, target=user.username, target_id=user.pk, message=", ".join(words))
    grant.administrator = now.administrator and (grant.administrator or bool(raised))
    grant.save()


def _set_administrator(user: User, wanted: bool, *, granted: bool) -> list[str]:
    """Make the user an administrator, or take that back if it was granted; returns the change as text."""
    if wanted == user.is_superuser or not (wanted or granted):
        return []
    user.is_staff = user.is_superuser = wanted
    user.save(update_fields=["is_staff", "is_superuser"])
    return ["+administrator" if wanted else "-administrator"]
