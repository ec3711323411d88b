"""Monthly report of teams: delivered work, cost, energy, jobs by outcome, waiting, restarts, waste, members' shares."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property

from django.contrib.auth.models import User
from django.db.models import Min

from accounting_app.fairness.team_months import figures_of, month_after, month_of
from accounting_app.fairness.usage_report import Period, Usage, usage_between
from accounting_app.models import DailyUsage, TeamMonth
from jobs_app.measurement.energy import Energy, co2_g_of
from jobs_app.models import Team

FORMER = "a former member"


@dataclass(frozen=True)
class MemberShare:
    """GPU time of a member's jobs, and its part of the team's work."""

    username: str
    gpu_hours: float
    work_gpu_hours: float
    part: float


@dataclass(frozen=True)
class TeamReport:
    """Report of a team's month. Costs are at the present prices of GPU types."""

    team: str
    month: date
    types: Sequence[Usage]
    figures: TeamMonth | None
    """Of its jobs; None: no longer known."""
    members: Sequence[MemberShare] = ()

    @property
    def gpu_hours(self) -> float:
        return sum(kind.gpu_hours for kind in self.types)

    @property
    def work_gpu_hours(self) -> float:
        """Weighted by speed: an hour on the average GPU counts as 1."""
        return sum(kind.work_gpu_hours for kind in self.types)

    @property
    def cost(self) -> float | None:
        """Cost of the GPU time; None if none of its GPU types has a price."""
        return sum(kind.cost for kind in self.types) or None

    @cached_property
    def energy(self) -> Energy:
        return Energy.sum(kind.energy for kind in self.types)

    @property
    def energy_kwh(self) -> float | None:
        return self.energy.kilowatt_hours

    @property
    def co2_g(self) -> float | None:
        """None: not known, or no carbon intensity is configured."""
        return co2_g_of(self.energy)

    @property
    def idle_gpu_hours(self) -> float | None:
        """GPU-hours that were held below 5 % utilization; None: no GPU was watched."""
        watched = sum(kind.watched_gpu_hours for kind in self.types)
        return sum(kind.idle_gpu_hours for kind in self.types) if watched else None

    @property
    def lost_gpu_hours(self) -> float | None:
        """GPU-hours of work that was lost by stops and lost nodes."""
        return self.figures.lost_gpu_s / 3600 if self.figures else None

    @property
    def failed_gpu_hours(self) -> float | None:
        """GPU-hours of attempts that failed."""
        return self.figures.failed_gpu_s / 3600 if self.figures else None


def read_reports(first: date, user: User, now: datetime, *, team: str = "") -> list[TeamReport]:
    """Reports of the teams that the user may see, by name: ten queries, six for a month that was stored."""
    teams = _teams_of(user, team)
    usage: dict[str, list[Usage]] = defaultdict(list)
    for row in usage_between(first, month_after(first) - timedelta(days=1), user, by=Period.MONTH, team=team):
        usage[row.team].append(row)
    figures = figures_of(first, None if user.is_staff and not team else [*teams], now)
    names = _usernames(figures.values()) if figures else {}
    return [
        report
        for pk, name in teams.items()
        if (report := _report(name, first, usage[name], _or_nothing(figures, pk, first), names)) is not None
    ]


def known_since(now: datetime) -> date:
    """The first month of which there is a report."""
    day = DailyUsage.objects.aggregate(Min("day"))["day__min"]
    return month_of(day or now.date())


def _teams_of(user: User, name: str) -> dict[int, str]:
    teams = Team.objects.all() if user.is_staff else Team.objects.filter(members=user)
    return dict((teams.filter(name=name) if name else teams).order_by("name").values_list("pk", "name"))


def _or_nothing(figures: Mapping[int, TeamMonth] | None, team: int, first: date) -> TeamMonth | None:
    """The team's figures, zeros if none of its jobs ended; None: not known."""
    return None if figures is None else figures.get(team) or TeamMonth(team_id=team, month=first)


def _report(
    team: str, first: date, types: Sequence[Usage], figures: TeamMonth | None, names: Mapping[str, str]
) -> TeamReport | None:
    """The team's report; None if it has no figures."""
    members = _members(figures, names) if figures else []
    report = TeamReport(team, first, types, figures, members)
    return report if types or members or (figures and _ended(figures)) else None


def _ended(figures: TeamMonth) -> int:
    return figures.succeeded + figures.failed + figures.cancelled + figures.timed_out


def _members(figures: TeamMonth, names: Mapping[str, str]) -> list[MemberShare]:
    """The largest part of the work first."""
    whole_s = sum(work_s for _, work_s in figures.members.values()) or 1.0
    shares = [
        MemberShare(names.get(key, FORMER), gpu_s / 3600, work_s / 3600, work_s / whole_s)
        for key, (gpu_s, work_s) in figures.members.items()
    ]
    return sorted(shares, key=lambda share: (-share.part, share.username))


def _usernames(figures: Iterable[TeamMonth]) -> dict[str, str]:
    keys = {key for row in figures for key in row.members}
    return {str(pk): name for pk, name in User.objects.filter(pk__in=keys).values_list("pk", "username")}
