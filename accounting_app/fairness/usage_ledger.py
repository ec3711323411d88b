"""Usage ledger: entitlement, delivered work and backlog of each team, and utilization of each GPU type, per minute.

Entitlement is a team's weighted max-min fair share: its weight over that of all teams with queued or running jobs, but
no more than its jobs can use. Delivered work is GPU-seconds weighted by the job's speed on those GPUs, the cluster's
average GPU being 1. The backlog is entitled less delivered work, as a virtual queue. Each round adds the time since the
last one.

Days have GPU time per team and GPU type, for accounts of years: they stay when minutes, jobs and claims are deleted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import NamedTuple, TypeVar

import numpy as np
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Sum

from accounting_app.fairness.entitlement import active_teams, entitlement
from accounting_app.models import DailyUsage, GpuTypeUsage, LedgerCoverage, QuotaHour, TeamBacklog, TeamUsage
from allocation.fairness import jain_index, later_backlog
from cluster_app.models import Gpu, in_service
from jobs_app.models import Attempt, GpuClaim

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
LONGEST_GAP = timedelta(hours=1)
"""Longer outages are left out of the ledger: which teams had waiting jobs then is unknown."""


def accrue(now: datetime) -> None:
    """Extend the ledger to now; inside the round's transaction, so that no second is counted twice.

    It stays where it ends later than now, unless a clock had been ahead, so that it would wait for longer than an hour.
    """
    covered = LedgerCoverage.covered_until() or now
    since = max(covered, now - LONGEST_GAP)
    if since < now:
        ran = _ran(since, now)
        _accrue_teams(since, now, ran)
        _accrue_types(since, now, ran)
        # Without a longest gap: which attempts ran is known also of an outage.
        _accrue_days(covered, now, ran if covered == since else _ran(covered, now))
    if not now < covered <= now + LONGEST_GAP:
        LedgerCoverage.extend(now)


def _accrue_teams(since: datetime, now: datetime, ran: Sequence["HeldGpuTime"]) -> None:
    active = active_teams(now)
    entitled = entitlement(active, Gpu.objects.present().count())
    gpu_s: dict[int, float] = defaultdict(float)
    work_gpu_s: dict[int, float] = defaultdict(float)
    for run in ran:
        gpu_s[run.team] += run.gpu_s
        work_gpu_s[run.team] += run.work_gpu_s
    whole_s = (now - since).total_seconds()
    _accrue_backlogs(entitled, work_gpu_s, whole_s)
    add_amounts(
        TeamUsage,
        [
            TeamUsage(
                team_id=team,
                minute=minute,
                entitled_share_s=entitled.get(team, 0.0) * seconds,
                active_s=seconds if team in entitled else 0.0,
                gpu_s=gpu_s[team] * seconds / whole_s,
                work_gpu_s=work_gpu_s[team] * seconds / whole_s,
                waiting_gpu_s=active[team].waiting * seconds if team in active else 0.0,
            )
            for minute, seconds in periods_between(since, now, MINUTE)
            for team in entitled.keys() | gpu_s.keys()
        ],
        key=("team_id", "minute"),
        amounts=("entitled_share_s", "active_s", "gpu_s", "work_gpu_s", "waiting_gpu_s"),
    )


def _accrue_backlogs(entitled: Mapping[int, float], work_gpu_s: Mapping[int, float], seconds: float) -> None:
    """Extend each team's virtual queue; where no work was delivered to any team, queues only fade."""
    before = dict(TeamBacklog.objects.values_list("team", "cluster_s"))
    teams = sorted(before.keys() | entitled.keys())
    delivered = sum(work_gpu_s.values())
    behind = [entitled.get(team, 0.0) - work_gpu_s.get(team, 0.0) / delivered if delivered else 0.0 for team in teams]
    later = later_backlog(np.array([before.get(team, 0.0) for team in teams]), np.array(behind), seconds)
    rows = [TeamBacklog(team_id=team, cluster_s=cluster_s) for team, cluster_s in zip(teams, later, strict=True)]
    TeamBacklog.objects.bulk_create(rows, update_conflicts=True, unique_fields=["team"], update_fields=["cluster_s"])


def _accrue_types(since: datetime, now: datetime, ran: Sequence["HeldGpuTime"]) -> None:
    busy: dict[int, float] = defaultdict(float)
    for run in ran:
        busy[run.gpu_type] += run.gpu_s
    starting, out = _starting_gpus(), _gpus_out_of_service()
    present = dict(Gpu.objects.present().values_list("node__gpu_type").annotate(Count("pk")).order_by())
    whole_s = (now - since).total_seconds()
    add_amounts(
        GpuTypeUsage,
        [
            GpuTypeUsage(
                gpu_type_id=kind,
                minute=minute,
                busy_gpu_s=busy[kind] * seconds / whole_s,
                present_gpu_s=present.get(kind, 0) * seconds,
                starting_gpu_s=starting.get(kind, 0) * seconds,
                out_gpu_s=out.get(kind, 0) * seconds,
            )
            for minute, seconds in periods_between(since, now, MINUTE)
            for kind in busy.keys() | present.keys()
        ],
        key=("gpu_type_id", "minute"),
        amounts=("busy_gpu_s", "present_gpu_s", "starting_gpu_s", "out_gpu_s"),
    )


def _starting_gpus() -> dict[int, int]:
    """GPUs by type held by attempts that have not started yet."""
    held = GpuClaim.objects.holding().filter(attempt__started_at=None, gpu__present=True)
    return dict(held.order_by().values_list("gpu__node__gpu_type").annotate(Count("pk")))


def _gpus_out_of_service() -> dict[int, int]:
    """Free GPUs by type that are out of service."""
    held = Exists(GpuClaim.objects.holding().filter(gpu=OuterRef("pk")))
    out = Gpu.objects.present().exclude(in_service("node__"), healthy=True).exclude(held)
    return dict(out.order_by().values_list("node__gpu_type").annotate(Count("pk")))


def _accrue_days(since: datetime, now: datetime, ran: Sequence["HeldGpuTime"]) -> None:
    gpu_s: dict[tuple[int, int], float] = defaultdict(float)
    work_gpu_s: dict[tuple[int, int], float] = defaultdict(float)
    for run in ran:
        gpu_s[run.team, run.gpu_type] += run.gpu_s
        work_gpu_s[run.team, run.gpu_type] += run.work_gpu_s
    whole_s = (now - since).total_seconds()
    add_amounts(
        DailyUsage,
        [
            DailyUsage(
                team_id=team,
                gpu_type_id=kind,
                day=day.date(),
                gpu_s=held_s * seconds / whole_s,
                work_gpu_s=work_gpu_s[team, kind] * seconds / whole_s,
            )
            for day, seconds in periods_between(since, now, DAY)
            for (team, kind), held_s in gpu_s.items()
            if held_s
        ],
        key=("team_id", "gpu_type_id", "day"),
        amounts=("gpu_s", "work_gpu_s"),
    )


def periods_between(since: datetime, now: datetime, length: timedelta) -> Iterator[tuple[datetime, float]]:
    """Split an interval at full minutes or days (UTC): each period's start, with the interval's seconds in it."""
    start = since.astimezone(UTC)
    while start < now:
        period = EPOCH + (start - EPOCH) // length * length
        end = min(period + length, now)
        yield period, (end - start).total_seconds()
        start = end


class HeldGpuTime(NamedTuple):
    """GPU time that attempts of a team held on a GPU type within an interval."""

    team: int
    gpu_type: int
    gpu_s: float
    work_gpu_s: float
    """Weighted by the relative speed of each attempt."""


def _ran(since: datetime, now: datetime) -> list[HeldGpuTime]:
    started = Attempt.objects.filter(started_at__isnull=False)
    return [*_ran_throughout(started, since, now), *_ran_in_part(started, since, now)]


def _ran_throughout(started: QuerySet[Attempt], since: datetime, now: datetime) -> list[HeldGpuTime]:
    """Attempts that ran during the whole interval, summed by the database."""
    running = started.filter(ended_at=None, started_at__lte=since).order_by().values_list("job__team", "gpu_type")
    sums = running.annotate(gpus=Sum("gpu_count"), work=Sum(F("gpu_count") * F("relative_speed")))
    seconds = (now - since).total_seconds()
    return [HeldGpuTime(team, kind, gpus * seconds, work * seconds) for team, kind, gpus, work in sums]


def _ran_in_part(started: QuerySet[Attempt], since: datetime, now: datetime) -> list[HeldGpuTime]:
    """Attempts that started or ended within the interval."""
    some = started.filter(Q(ended_at=None, started_at__gt=since) | Q(ended_at__gt=since)).order_by()
    columns = ("job__team", "gpu_type", "relative_speed", "gpu_count", "started_at", "ended_at")
    return [
        HeldGpuTime(team, kind, gpu_s, gpu_s * speed)
        for team, kind, speed, gpus, start, end in some.values_list(*columns)
        if start and (gpu_s := gpus * max((min(end or now, now) - max(start, since)).total_seconds(), 0.0))
    ]


Usage = TypeVar("Usage", TeamUsage, GpuTypeUsage, DailyUsage, QuotaHour)


def add_amounts(model: type[Usage], rows: Sequence[Usage], *, key: Sequence[str], amounts: Sequence[str]) -> None:
    """Add the amounts to the rows of their minutes or days, in two statements however long the interval is.

    Reading and writing back is safe: each amount has one writer, which holds the row lock of its lease. Two of them
    write the same rows, so they lock them in the same order.
    """
    if not rows:
        return
    *_, period = key
    rows = sorted(rows, key=lambda row: [getattr(row, name) for name in key])
    written = model._default_manager.filter(**{f"{period}__in": {getattr(row, period) for row in rows}})
    known = {tuple(row[name] for name in key): row for row in written.values(*key, *amounts)}
    for row in rows:
        before = known.get(tuple(getattr(row, name) for name in key), {})
        for name in amounts:
            setattr(row, name, getattr(row, name) + before.get(name, 0.0))
    model._default_manager.bulk_create(rows, update_conflicts=True, unique_fields=key, update_fields=amounts)


@dataclass(frozen=True)
class TeamShare:
    """A team's shares over a window, of all delivered work and of all entitlement, and its backlog now."""

    team: str
    weight: float
    entitled: float
    delivered: float
    gpu_hours: float
    backlog_gpu_hours: float
    waiting_gpus: float = 0.0
    """GPUs that its waiting jobs asked for, on average over the time in which it had jobs."""

    @property
    def ratio(self) -> float | None:
        """Delivered over entitled; 1 is fair."""
        return self.delivered / self.entitled if self.entitled else None


def team_shares(since: datetime) -> list[TeamShare]:
    """Entitled and delivered share of each team since then, largest entitlement first."""
    rows = list(
        TeamUsage.objects.filter(minute__gte=since)
        .values("team__name", "team__weight", "team__teambacklog__cluster_s")
        .annotate(entitled=Sum("entitled_share_s"), work=Sum("work_gpu_s"), gpu_s=Sum("gpu_s"))
        .annotate(waiting_gpu_s=Sum("waiting_gpu_s"), active_s=Sum("active_s"))
        .order_by("-entitled", "team__name")
    )
    entitled, work = (sum(row[name] for row in rows) or 1.0 for name in ("entitled", "work"))
    gpus = Gpu.objects.present().count()
    return [
        TeamShare(
            team=row["team__name"],
            weight=row["team__weight"],
            entitled=row["entitled"] / entitled,
            delivered=row["work"] / work,
            gpu_hours=row["gpu_s"] / 3600,
            backlog_gpu_hours=gpus * (row["team__teambacklog__cluster_s"] or 0.0) / 3600,
            waiting_gpus=row["waiting_gpu_s"] / row["active_s"] if row["active_s"] else 0.0,
        )
        for row in rows
    ]


def jain_index_of_teams(shares: Sequence[TeamShare]) -> float | None:
    """Jain's index of delivered over entitled; None if nothing was delivered."""
    index = jain_index(np.array([share.ratio for share in shares if share.ratio is not None]))
    return index if isfinite(index) else None
