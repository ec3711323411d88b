"""What each team was entitled to and got, and how busy each GPU type was, minute by minute.

Entitlement: a team's weight over the weights of the teams with queued or running jobs. Delivered: GPU-seconds weighed
by the speed of the GPUs for that job, the cluster's average GPU being 1. Rounds add what passed since the last one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from django.db.models import Count, F, Q, QuerySet, Sum

from cluster_app.models import Gpu
from jobs_app.models import Attempt, Job, Team
from scheduler_app.models import GpuTypeUsage, SchedulerLease, TeamUsage

MINUTE = timedelta(minutes=1)
LONGEST_GAP = timedelta(hours=1)
"""Of an outage longer than this the ledger tells nothing: nobody knows who was waiting then."""


def accrue(now: datetime) -> None:
    """Bring the ledger up to now. Inside the round's transaction, so that no second counts twice."""
    lease = SchedulerLease.objects.get()
    since = max(lease.accrued_until or now, now - LONGEST_GAP)
    if since < now:
        ran = _ran(since, now)
        _accrue_teams(since, now, ran)
        _accrue_types(since, now, ran)
    SchedulerLease.objects.update(accrued_until=now)


def _accrue_teams(since: datetime, now: datetime, ran: Sequence["Ran"]) -> None:
    entitled = entitlement(_active_team_weights())
    gpu_s: dict[int, float] = defaultdict(float)
    work_gpu_s: dict[int, float] = defaultdict(float)
    for run in ran:
        gpu_s[run.team] += run.gpu_s
        work_gpu_s[run.team] += run.work_gpu_s
    whole_s = (now - since).total_seconds()
    _add(
        TeamUsage,
        [
            TeamUsage(
                team_id=team,
                minute=minute,
                entitled_share_s=entitled.get(team, 0.0) * seconds,
                active_s=seconds if team in entitled else 0.0,
                gpu_s=gpu_s[team] * seconds / whole_s,
                work_gpu_s=work_gpu_s[team] * seconds / whole_s,
            )
            for minute, seconds in minutes_between(since, now)
            for team in entitled.keys() | gpu_s.keys()
        ],
        key=("team_id", "minute"),
        amounts=("entitled_share_s", "active_s", "gpu_s", "work_gpu_s"),
    )


def _accrue_types(since: datetime, now: datetime, ran: Sequence["Ran"]) -> None:
    busy: dict[int, float] = defaultdict(float)
    for run in ran:
        busy[run.gpu_type] += run.gpu_s
    present = dict(Gpu.objects.present().values_list("node__gpu_type").annotate(Count("pk")).order_by())
    whole_s = (now - since).total_seconds()
    _add(
        GpuTypeUsage,
        [
            GpuTypeUsage(
                gpu_type_id=kind,
                minute=minute,
                busy_gpu_s=busy[kind] * seconds / whole_s,
                present_gpu_s=present.get(kind, 0) * seconds,
            )
            for minute, seconds in minutes_between(since, now)
            for kind in busy.keys() | present.keys()
        ],
        key=("gpu_type_id", "minute"),
        amounts=("busy_gpu_s", "present_gpu_s"),
    )


def entitlement(weights: Mapping[int, float]) -> dict[int, float]:
    """Each active team's share of the cluster."""
    total = sum(weights.values())
    return {team: weight / total for team, weight in weights.items()}


def minutes_between(since: datetime, now: datetime) -> Iterator[tuple[datetime, float]]:
    """The minutes that the interval touches, with the seconds of it in each."""
    start = since
    while start < now:
        minute = start.replace(second=0, microsecond=0)
        end = min(minute + MINUTE, now)
        yield minute, (end - start).total_seconds()
        start = end


def _active_team_weights() -> dict[int, float]:
    active = Job.objects.unfinished().filter(held=False).values("team")
    return dict(Team.objects.filter(pk__in=active).values_list("pk", "weight"))


class Ran(NamedTuple):
    """What attempts of a team held of a GPU type within the interval."""

    team: int
    gpu_type: int
    gpu_s: float
    work_gpu_s: float
    """Weighed by their relative speed."""


def _ran(since: datetime, now: datetime) -> list[Ran]:
    started = Attempt.objects.filter(started_at__isnull=False)
    return [*_ran_throughout(started, since, now), *_ran_in_part(started, since, now)]


def _ran_throughout(started: QuerySet[Attempt], since: datetime, now: datetime) -> list[Ran]:
    """Most of them, which the database adds up."""
    running = started.filter(ended_at=None, started_at__lte=since).order_by().values_list("job__team", "gpu_type")
    sums = running.annotate(gpus=Sum("gpu_count"), work=Sum(F("gpu_count") * F("relative_speed")))
    seconds = (now - since).total_seconds()
    return [Ran(team, kind, gpus * seconds, work * seconds) for team, kind, gpus, work in sums]


def _ran_in_part(started: QuerySet[Attempt], since: datetime, now: datetime) -> list[Ran]:
    """Those that began or ended meanwhile."""
    some = started.filter(Q(ended_at=None, started_at__gt=since) | Q(ended_at__gt=since))
    columns = ("job__team", "gpu_type", "relative_speed", "gpu_count", "started_at", "ended_at")
    return [
        Ran(team, kind, gpu_s, gpu_s * speed)
        for team, kind, speed, gpus, start, end in some.values_list(*columns)
        if start and (gpu_s := gpus * max((min(end or now, now) - max(start, since)).total_seconds(), 0.0))
    ]


Usage = TypeVar("Usage", TeamUsage, GpuTypeUsage)


def _add(model: type[Usage], rows: Sequence[Usage], *, key: Sequence[str], amounts: Sequence[str]) -> None:
    """Add these amounts to what is written of their minutes: two statements, however long the outage was.

    Read and written back: nobody else writes here, for the round's transaction holds the lease's row.
    """
    written = model._default_manager.filter(minute__in={row.minute for row in rows})
    known = {tuple(row[name] for name in key): row for row in written.values(*key, *amounts)}
    for row in rows:
        before = known.get(tuple(getattr(row, name) for name in key), {})
        for name in amounts:
            setattr(row, name, getattr(row, name) + before.get(name, 0.0))
    model._default_manager.bulk_create(rows, update_conflicts=True, unique_fields=key, update_fields=amounts)


@dataclass(frozen=True)
class TeamShare:
    """A team over a window: shares are of all that was delivered, and of what the active teams were entitled to."""

    team: str
    weight: float
    entitled: float
    delivered: float
    gpu_hours: float

    @property
    def ratio(self) -> float | None:
        """Delivered over entitled; 1 is fair."""
        return self.delivered / self.entitled if self.entitled else None


def team_shares(since: datetime) -> list[TeamShare]:
    """What each team was entitled to and got since then, the most entitled first."""
    rows = list(
        TeamUsage.objects.filter(minute__gte=since)
        .values("team__name", "team__weight")
        .annotate(entitled=Sum("entitled_share_s"), work=Sum("work_gpu_s"), gpu_s=Sum("gpu_s"))
        .order_by("-entitled", "team__name")
    )
    entitled, work = (sum(row[name] for row in rows) or 1.0 for name in ("entitled", "work"))
    return [
        TeamShare(
            team=row["team__name"],
            weight=row["team__weight"],
            entitled=row["entitled"] / entitled,
            delivered=row["work"] / work,
            gpu_hours=row["gpu_s"] / 3600,
        )
        for row in rows
    ]


def jain_index(shares: list[TeamShare]) -> float | None:
    """Jain's index of delivered over entitled: 1 when all ratios are equal, 1/n when one team has all."""
    ratios = [share.ratio for share in shares if share.ratio is not None]
    squares = sum(ratio**2 for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else None
