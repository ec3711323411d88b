"""Ledger of quotas on GPU types: use, borrowing and shadow prices per hour, and their sums over a day."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db.models import Count, Sum

from accounting_app.fairness.usage_ledger import LONGEST_GAP, add_amounts, periods_between
from accounting_app.models import LedgerCoverage, QuotaHour
from cluster_app.models import Gpu
from jobs_app.models import Attempt, TeamQuota

TeamAndType = tuple[int, int]
HOUR, WINDOW = timedelta(hours=1), timedelta(days=1)


class QuotaUse(NamedTuple):
    """A quota in one round: GPUs in use before it, those beyond the quota, and the price; None: it is not known."""

    team: int
    gpu_type: int
    used: int
    borrowed: int
    price: float | None


def accrue_quotas(uses: Sequence[QuotaUse], now: datetime) -> None:
    """Extend the hours of quotas to now, from where the usage ledger ends; inside the round's transaction."""
    if not uses:
        return
    covered = LedgerCoverage.covered_until() or now
    periods = list(periods_between(max(covered, now - LONGEST_GAP), now, HOUR))
    rows = [_hour(use, hour, seconds) for use in uses for hour, seconds in periods]
    amounts = ("gpu_s", "borrowed_gpu_s", "quota_s", "priced_s", "saved_job_s")
    add_amounts(QuotaHour, rows, key=("team_id", "gpu_type_id", "hour"), amounts=amounts)


def _hour(use: QuotaUse, hour: datetime, seconds: float) -> QuotaHour:
    return QuotaHour(
        team_id=use.team,
        gpu_type_id=use.gpu_type,
        hour=hour,
        gpu_s=use.used * seconds,
        borrowed_gpu_s=use.borrowed * seconds,
        quota_s=seconds,
        priced_s=0.0 if use.price is None else seconds,
        saved_job_s=(use.price or 0.0) * seconds,
    )


@dataclass(frozen=True)
class QuotaReport:
    """A team's quota on a GPU type: its use now, and over the last day."""

    quota: TeamQuota
    used: int
    borrowed_by_others: int
    """GPUs of the quota that other teams have now."""
    mean_gpus: float | None
    """Over the last day; None: nothing is recorded yet."""
    waiting_h: float | None
    """Hours of waiting a day, over all jobs, that one more GPU in the quota would save; None: not known."""

    @property
    def borrowed(self) -> int:
        return max(self.used - self.quota.gpus, 0)

    @property
    def part(self) -> float:
        """GPUs in use over the quota."""
        return self.used / self.quota.gpus if self.quota.gpus else float(self.used > 0)

    @property
    def used_words(self) -> str:
        """GPUs in use and borrowed, as text."""
        own = f"{self.used}, {self.borrowed} of them borrowed" if self.borrowed else str(self.used)
        return f"{own}; others borrow {self.borrowed_by_others}" if self.borrowed_by_others else own

    @property
    def words(self) -> str:
        """One sentence on the cost of the quota."""
        kind = self.quota.gpu_type
        if self.waiting_h is None:
            return f"What the {kind} quota of {self.quota.team} costs is not known yet."
        if self.waiting_h < LEAST_SHOWN_H:
            return f"The {kind} quota of {self.quota.team} costs no waiting."
        hours = f"{self.waiting_h:.1f} h of waiting a day"
        return f"The {kind} quota of {self.quota.team} costs {hours}: one more GPU would save them."


LEAST_SHOWN_H = 0.05
"""Waiting a day that is shown as more than none."""


def quota_reports(user: User, now: datetime) -> list[QuotaReport]:
    """Quotas of the user's teams, of all for staff, in five queries however many there are."""
    quotas = TeamQuota.objects.filter(team__retired_at=None).select_related("team", "gpu_type")
    visible = list(quotas if user.is_staff else quotas.filter(team__members=user))
    if not visible:
        return []
    used, days = _gpus_in_use(), _of_the_last_day(visible, now)
    lent = lent_gpus(_quota_sizes(), used, _gpus_of_types())
    return [_report(quota, used, lent, days.get((quota.team_id, quota.gpu_type_id))) for quota in visible]


class DaySums(NamedTuple):
    """Sums over the hours of the last day: of a quota's GPU-seconds, its seconds, those priced, and waiting saved."""

    gpu_s: float
    quota_s: float
    priced_s: float
    saved_job_s: float


def _report(
    quota: TeamQuota,
    used: Mapping[TeamAndType, int],
    lent: Mapping[TeamAndType, int],
    day: DaySums | None,
) -> QuotaReport:
    own = quota.team_id, quota.gpu_type_id
    return QuotaReport(
        quota=quota,
        used=used.get(own, 0),
        borrowed_by_others=lent[own],
        mean_gpus=day.gpu_s / day.quota_s if day and day.quota_s else None,
        waiting_h=24 * day.saved_job_s / day.priced_s if day and day.priced_s else None,
    )


def _gpus_in_use() -> dict[TeamAndType, int]:
    """GPUs of live attempts by team and type."""
    live = Attempt.objects.live().order_by().values_list("job__team", "gpu_type")
    return {(team, kind): gpus for team, kind, gpus in live.annotate(Sum("gpu_count"))}


def _quota_sizes() -> dict[TeamAndType, int]:
    quotas = TeamQuota.objects.filter(team__retired_at=None).order_by().values_list("team", "gpu_type", "gpus")
    return {(team, kind): gpus for team, kind, gpus in quotas}


def _gpus_of_types() -> dict[int, int]:
    return dict(Gpu.objects.present().order_by().values_list("node__gpu_type").annotate(Count("pk")))


def lent_gpus(
    sizes: Mapping[TeamAndType, int], used: Mapping[TeamAndType, int], gpus: Mapping[int, int]
) -> dict[TeamAndType, int]:
    """GPUs of each quota that other teams have: those beyond all quotas and beyond the GPUs that belong to none. Pure.

    Of several quotas on a type each lends in proportion to what it leaves.
    """
    left = {key: max(size - used.get(key, 0), 0) for key, size in sizes.items()}
    lent = {}
    for team, kind in sizes:
        beyond = sum(max(gpus_used - sizes.get(key, 0), 0) for key, gpus_used in used.items() if key[1] == kind)
        in_quotas, unused = (sum(n for (_, of), n in part.items() if of == kind) for part in (sizes, left))
        taken = min(max(beyond - max(gpus.get(kind, 0) - in_quotas, 0), 0), unused)
        lent[team, kind] = round(taken * left[team, kind] / unused) if unused else 0
    return lent


def _of_the_last_day(quotas: Iterable[TeamQuota], now: datetime) -> dict[TeamAndType, DaySums]:
    rows = QuotaHour.objects.filter(hour__gt=now - WINDOW, team__in={quota.team_id for quota in quotas}).order_by()
    sums = rows.values_list("team_id", "gpu_type_id").annotate(*(Sum(name) for name in DaySums._fields))
    return {(team, kind): DaySums(*of_quota) for team, kind, *of_quota in sums}
