"""Members of a team, with the GPUs that each uses now and the GPU time of the last days."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Count, DateTimeField, F, Q, Sum, Value
from django.db.models.functions import Coalesce, Greatest

from database.time_bucket import EpochSeconds
from jobs_app.models import Attempt, GpuClaim, Job, Team

WINDOW = timedelta(days=7)


@dataclass(frozen=True)
class Member:
    """A member, or somebody who was one and whose jobs are the team's still."""

    user: User
    is_member: bool
    is_lead: bool
    invited: bool
    """Has not accepted the invitation."""
    gpus: int
    gpu_hours: float
    """In the last seven days."""
    running: int
    waiting: int


def members_of(team: Team, now: datetime) -> list[Member]:
    """Members of the team by use in the last days, those who have left and used GPUs among them; in seven queries."""
    members, leads = (set(people.values_list("pk", flat=True)) for people in (team.members, team.leads))
    gpus, gpu_s, jobs = _gpus_now(team), _gpu_seconds(team, now - WINDOW, now), _unfinished(team)
    invited = set(team.members.filter(invitation__used_at=None).exclude(invitation=None).values_list("pk", flat=True))
    users = User.objects.filter(pk__in=members | gpu_s.keys() | jobs.keys()).order_by("username")
    found = [
        Member(
            user=user,
            is_member=user.pk in members,
            is_lead=user.pk in leads,
            invited=user.pk in invited,
            gpus=gpus.get(user.pk, 0),
            gpu_hours=gpu_s.get(user.pk, 0.0) / 3600,
            running=jobs.get(user.pk, (0, 0))[0],
            waiting=jobs.get(user.pk, (0, 0))[1],
        )
        for user in users
    ]
    return sorted(found, key=lambda member: (-member.gpu_hours, member.user.username))


def _gpus_now(team: Team) -> Mapping[int, int]:
    held = GpuClaim.objects.holding().filter(attempt__job__team=team).order_by()
    return dict(held.values_list("attempt__job__owner").annotate(Count("pk")))


def _gpu_seconds(team: Team, since: datetime, until: datetime) -> Mapping[int, float]:
    """GPU-seconds by owner, summed by the database; attempts are found by their end."""
    began = Greatest("started_at", Value(since, output_field=DateTimeField()))
    ended = Coalesce("ended_at", Value(until, output_field=DateTimeField()))
    ran = Attempt.objects.filter(Q(ended_at=None) | Q(ended_at__gt=since), job__team=team, started_at__isnull=False)
    gpu_s = Sum(F("gpu_count") * (EpochSeconds(ended) - EpochSeconds(began)))
    return dict(ran.order_by().values_list("job__owner").annotate(gpu_s=gpu_s))


def _unfinished(team: Team) -> Mapping[int, tuple[int, int]]:
    """Running and waiting jobs by owner."""
    active = Count("pk", filter=Q(state__in=Job.ACTIVE))
    jobs = Job.objects.unfinished().filter(team=team).order_by().values_list("owner")
    return {
        owner: (running, every - running) for owner, running, every in jobs.annotate(active=active, every=Count("pk"))
    }
