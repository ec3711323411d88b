"""Budgets of teams: their use in the calendar period, by the daily usage ledger, and the consequences.

A soft budget lowers the team's weight where it is used faster than time passes. With a hard one that is used up, jobs
that run go on, and none of its waiting jobs starts before the next period.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q, Sum

from accounting_app.models import DailyUsage
from allocation.budgets import midnight, period_around, stops_starts, weight_part
from jobs_app.models import Budget, Reason, Team
from jobs_app.submission.admission import Admitted

Period, Kind = Budget.Period, Budget.Kind
DAY = timedelta(days=1)


@dataclass(frozen=True)
class TeamBudget:
    """Budget of a team in the current period, and its use, in reference GPU-hours."""

    team_id: int
    team: str
    period: str
    kind: str
    gpu_hours: float
    used_gpu_hours: float
    began_at: datetime
    resets_at: datetime
    now: datetime

    @property
    def used(self) -> float:
        """Fraction that is used; it may be more than 1."""
        return self.used_gpu_hours / self.gpu_hours

    @property
    def elapsed(self) -> float:
        """Fraction of the period that has passed."""
        return (self.now - self.began_at) / (self.resets_at - self.began_at)

    @property
    def is_used_up(self) -> bool:
        return self.used >= 1

    @property
    def stops_starts(self) -> bool:
        """Whether jobs of the team wait for the next period."""
        return stops_starts(self.kind, self.used)

    @property
    def weight_part(self) -> float:
        """Fraction of its weight that the team has now."""
        return weight_part(self.kind, self.used, self.elapsed)

    @property
    def expected_gpu_hours(self) -> float | None:
        """Use at the end of the period at its pace so far; None: it has just begun."""
        return self.used_gpu_hours / self.elapsed if self.elapsed else None

    @property
    def used_up_at(self) -> datetime | None:
        """Time at which it is used up at the pace so far; None if it is not within the period, or is already."""
        if self.is_used_up or (self.expected_gpu_hours or 0.0) <= self.gpu_hours:
            return None
        return self.began_at + (self.now - self.began_at) / self.used

    @property
    def words(self) -> str:
        """`101 of 100 reference GPU-hours (101 %) of this month`."""
        amounts = f"{self.used_gpu_hours:.4g} of {self.gpu_hours:.4g} reference GPU-hours"
        return f"{amounts} ({self.used:.0%}) of this {self.period}"

    @property
    def why_jobs_wait(self) -> str:
        """The message of a job that waits for the next period."""
        until = f"{self.resets_at:%F %H:%M} UTC"
        return f"Team {self.team} has used up its budget: {self.words}. Its jobs start again from {until} on."

    @property
    def warning(self) -> str:
        """Warning for a person who plans or submits a job; empty if there is none."""
        if self.stops_starts:
            return self.why_jobs_wait
        if self.weight_part < 1:
            lower = f"its weight is {self.weight_part:.0%} of what it was"
            return f"Team {self.team} has used {self.words}, faster than time passes: {lower}."
        if self.kind == Kind.HARD and self.used_up_at:
            when = (
                f"used up by {self.used_up_at:%F %H:%M} UTC; then no further job starts before the next {self.period}"
            )
            return f"Team {self.team} has used {self.words}: at this pace its budget is {when}."
        return ""


def read_budgets(now: datetime, teams: Collection[int] | None = None) -> dict[int, TeamBudget]:
    """Budgets of these teams, or of all: one query, and another for their use if there are any."""
    found = Budget.objects.all() if teams is None else Budget.objects.filter(team__in=teams)
    rows = list(found.order_by("team__name").values_list("team", "team__name", "period", "kind", "gpu_hours"))
    if not rows:
        return {}
    dates = {period: period_around(now.astimezone(UTC).date(), period) for period in Period.values}
    used = _used_gpu_hours({team: dates[period][0] for team, _, period, *_ in rows})
    return {
        team: TeamBudget(
            *(team, name, period, kind, hours, used.get(team, 0.0)),
            began_at=midnight(dates[period][0]),
            resets_at=midnight(dates[period][1]),
            now=now,
        )
        for team, name, period, kind, hours in rows
    }


def budgets_of(teams: Iterable[Team], now: datetime) -> dict[int, TeamBudget]:
    """Budgets of these teams, without a query where they were read with theirs and have none."""
    able = [team.pk for team in teams if hasattr(team, "budget")]
    return read_budgets(now, able) if able else {}


def budgets_seen_by(user: User, now: datetime) -> list[TeamBudget]:
    """Budgets of the user's teams, for staff of all, by name."""
    teams = None if user.is_staff else list(user.teams.values_list("pk", flat=True))
    return list(read_budgets(now, teams).values())


def used_up(budgets: Mapping[int, TeamBudget]) -> dict[int, TeamBudget]:
    """The budgets of teams whose jobs wait for the next period."""
    return {team: budget for team, budget in budgets.items() if budget.stops_starts}


def used_gpu_hours_at(at: datetime, periods: Mapping[int, str]) -> dict[int, float]:
    """Work of each team from the begin of its period to this time, of whose day the part that had passed."""
    day = at.astimezone(UTC).date()
    before = _used_gpu_hours({team: period_around(day, period)[0] for team, period in periods.items()}, until=day)
    that_day, passed = _used_gpu_hours(dict.fromkeys(periods, day), until=day + DAY), (at - midnight(day)) / DAY
    return {team: before.get(team, 0.0) + that_day.get(team, 0.0) * passed for team in periods}


def _used_gpu_hours(since: Mapping[int, date], until: date | None = None) -> dict[int, float]:
    """Work of each team since the day that its period began, before that of `until`."""
    within = Q(pk__in=())
    for first in set(since.values()):
        within |= Q(day__gte=first, team__in=[team for team, day in since.items() if day == first])
    if until is not None:
        within &= Q(day__lt=until)
    sums = DailyUsage.objects.filter(within).order_by().values_list("team").annotate(Sum("work_gpu_s"))
    return {team: work_gpu_s / 3600 for team, work_gpu_s in sums}


# -- submission ----------------------------------------------------------------------------------------------------


def with_budget_notes(jobs: Sequence[Admitted], now: datetime) -> list[Admitted]:
    """The admitted jobs with notes on their teams' budgets; no query if there are no budgets.

    So a job says from its first moment that it waits for a budget.
    """
    budgets = budgets_of({job.team for job in jobs}, now)
    return [_noted(job, budgets[job.team.pk]) if job.team.pk in budgets else job for job in jobs]


def _noted(job: Admitted, budget: TeamBudget) -> Admitted:
    waits = (Reason.BUDGET, budget.why_jobs_wait) if budget.stops_starts else None
    return replace(job, waits=waits, note=budget.warning)
