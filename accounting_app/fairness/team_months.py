"""Months of teams, summed by the database: jobs by outcome, waiting, restarts, lost work and members' GPU time.

They are read from jobs and attempts while these are there. Retention stores each month that is over, before its jobs go
to the archive; from then on the stored figures count.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.db.models import Count, DateTimeField, F, Max, Q, Sum, Value
from django.db.models.functions import Coalesce, Greatest, Least

from accounting_app.models import LedgerCoverage, TeamMonth
from allocation.budgets import midnight, period_around
from database.time_bucket import EpochSeconds
from jobs_app.models import Attempt, Job
from jobs_app.models.attempt import STOPPED

CLOSED_AFTER = timedelta(days=1)
"""The end of an attempt may be heard of later."""
LATE = 0.95
Columns = dict[int, dict[str, Any]]
"""Team → columns of its month."""


def month_of(day: date) -> date:
    """The first day of its month."""
    return day.replace(day=1)


def month_name(first: date) -> str:
    """As 2026-11: `%Y` would write the years before 1000 without their zeros."""
    return first.isoformat()[: len("2026-11")]


def month_after(first: date) -> date:
    return period_around(first, "month")[1]


def is_kept(first: date, now: datetime) -> bool:
    """Whether all jobs that ended in this month, or since, are still in the database."""
    return midnight(first) >= now - settings.MOTLEY_KEEP_JOBS


def figures_of(first: date, teams: Sequence[int] | None, now: datetime) -> dict[int, TeamMonth] | None:
    """Figures of these teams, or of all, in a month; None: its jobs are in the archive, and it was never stored.

    Of a month that goes on they reach as far as the daily ledger, so that members' GPU time adds up to their team's.
    """
    stored = TeamMonth.objects.filter(month=first)
    if stored.exists():
        rows = stored if teams is None else stored.filter(team__in=teams)
        return {row.team_id: row for row in rows}
    return read_month(first, teams, min(LedgerCoverage.covered_until() or now, now)) if is_kept(first, now) else None


def close_month_when_due(now: datetime) -> None:
    """Store the oldest completed month that is not stored yet, one per call. Idempotent."""
    for first in _months_to_close(now):
        if rows := read_month(first, None, now):
            TeamMonth.objects.bulk_create(rows.values(), ignore_conflicts=True)
            return


def _months_to_close(now: datetime) -> Iterator[date]:
    """Months after the last that was stored; of those without jobs none ever is."""
    last = TeamMonth.objects.aggregate(Max("month"))["month__max"]
    created_at = Job.objects.order_by("created_at").values_list("created_at", flat=True).first() or now
    first = month_after(last) if last else month_of(created_at.date())
    while midnight(month_after(first)) + CLOSED_AFTER <= now:
        if is_kept(first, now):
            yield first
        first = month_after(first)


def read_month(first: date, teams: Sequence[int] | None, now: datetime) -> dict[int, TeamMonth]:
    """Figures of a month as jobs and attempts have them, in four queries."""
    since = midnight(first)
    until = max(since, min(midnight(month_after(first)), now))
    jobs, attempts = _ended(since, until), Attempt.objects.filter(started_at__lt=until)
    if teams is not None:
        jobs, attempts = jobs.filter(team__in=teams), attempts.filter(job__team__in=teams)
    columns: Columns = defaultdict(dict)
    for found in (_outcomes(jobs), _waits(jobs), _waste(attempts, since, until), _members(attempts, since, until)):
        for team, some in found.items():
            columns[team] |= some
    return {team: TeamMonth(team_id=team, month=first, **its) for team, its in columns.items()}


def _ended(since: datetime, until: datetime) -> Any:
    """Jobs that ended in the month, by either of the two partial indexes."""
    then = Q(finished_at__gte=since, finished_at__lt=until)
    return Job.objects.filter(then & Q(files_deleted_at=None) | then & Q(files_deleted_at__isnull=False)).order_by()


def _outcomes(jobs: Any) -> Columns:
    found: Columns = defaultdict(dict)
    for team, state, count in jobs.values_list("team", "state").annotate(Count("pk")):
        found[team][state] = count
    return found


def _waits(jobs: Any) -> Columns:
    arrived = Coalesce(Greatest("created_at", "begin_time"), "created_at")  # SQLite's greatest of none is none
    waited = EpochSeconds(F("started_at")) - EpochSeconds(arrived)
    found: dict[int, list[float]] = defaultdict(list)
    for team, seconds in jobs.filter(started_at__isnull=False).values_list("team", waited):
        found[team].append(seconds)
    return {
        team: {"started": len(waits), "wait_s": float(np.mean(waits)), "wait_p95_s": float(np.quantile(waits, LATE))}
        for team, waits in found.items()
    }


def _waste(attempts: Any, since: datetime, until: datetime) -> Columns:
    ended = attempts.filter(ended_at__gte=since, ended_at__lt=until)
    ran_s = F("gpu_count") * (EpochSeconds(F("ended_at")) - EpochSeconds(F("started_at")))
    stopped = Q(outcome__in=(*STOPPED, Attempt.Outcome.LOST))
    sums = (
        ended.order_by()
        .values("job__team")
        .annotate(
            restarts=Count("pk", filter=Q(number__gt=1)),
            lost_gpu_s=Coalesce(Sum("work_lost_gpu_s", filter=stopped), 0.0),
            failed_gpu_s=Coalesce(Sum(ran_s, filter=Q(outcome=Attempt.Outcome.FAILED)), 0.0),
        )
    )
    return {row.pop("job__team"): row for row in sums}


def _members(attempts: Any, since: datetime, until: datetime) -> Columns:
    end = Value(until, output_field=DateTimeField())
    began = Greatest("started_at", Value(since, output_field=DateTimeField()))
    gpu_s = F("gpu_count") * (EpochSeconds(Least(Coalesce("ended_at", end), end)) - EpochSeconds(began))
    ran = attempts.filter(Q(ended_at=None) | Q(ended_at__gt=since)).order_by()
    rows = ran.values_list("job__team", "job__owner").annotate(held=Sum(gpu_s), work=Sum(gpu_s * F("relative_speed")))
    found: dict[int, Mapping[str, list[float]]] = defaultdict(dict)
    for team, owner, held_s, work_s in rows:
        found[team] = {**found[team], str(owner): [held_s, work_s]}
    return {team: {"members": members} for team, members in found.items()}
