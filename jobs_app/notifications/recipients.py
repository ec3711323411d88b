"""Recipients of notifications: the targets of a job's team, and those of its owner while the owner may see the job."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q

from jobs_app.models import Job, NotificationTarget, Team


class Recipients(NamedTuple):
    """Targets that may be told of some jobs, and which owners are members of which teams."""

    targets: Sequence[NotificationTarget]
    members: frozenset[tuple[int, int]]
    """User and team."""

    def of(self, job: Job) -> list[NotificationTarget]:
        """Those of the job's team; those of its owner, who may have left the team."""
        sees = job.owner.is_staff or (job.owner_id, job.team_id) in self.members
        return [one for one in self.targets if one.team_id == job.team_id or (sees and one.user_id == job.owner_id)]


def read_recipients(jobs: Iterable[UUID]) -> Recipients:
    """Targets of the teams and of the owners of these jobs: two queries, one if there is none."""
    rows = Job.objects.filter(pk__in=list(jobs))
    asked = Q(user__in=rows.values("owner"), user__is_active=True) | Q(team__in=rows.values("team"))
    targets = list(NotificationTarget.objects.filter(asked).only("pk", "user", "team", "events"))
    if not targets:
        return Recipients((), frozenset())
    owners = {target.user_id for target in targets if target.user_id}
    rows_of_members = Team.members.through._default_manager.filter(user__in=owners)
    return Recipients(targets, frozenset(rows_of_members.values_list("user", "team")))


def targets_of(owner: User, team: Team) -> list[NotificationTarget]:
    """Targets of the team, and those of this owner while the owner may see its jobs."""
    sees = owner.is_active and (owner.is_staff or team.members.filter(pk=owner.pk).exists())
    asked = Q(team=team) | Q(user=owner) if sees else Q(team=team)
    return list(NotificationTarget.objects.filter(asked).only("pk", "user", "team", "events"))
