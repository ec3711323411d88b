"""Usage report: GPU-hours, energy and cost of each team on each GPU type, per day or month, from the daily ledger."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from django.contrib.auth.models import User
from django.db.models import F, QuerySet, Sum
from django.db.models.functions import TruncMonth

from accounting_app.models import DailyUsage
from cluster_app.models import GpuType
from jobs_app.measurement.energy import Energy, EnergySource


class Period(StrEnum):
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True)
class Usage:
    """Usage of a team on a GPU type in one day (its date) or month (the date of its first day)."""

    period: date
    team: str
    gpu_type: str
    gpu_hours: float
    work_gpu_hours: float
    """Weighted by the speed of the GPUs for the jobs; the cluster's average GPU counts as 1."""
    cost: float
    """At the price per hour that the GPU type has now."""
    energy: Energy
    """As read, and for the rest by the power that the GPU type has now."""
    watched_gpu_hours: float = 0.0
    """Of which utilization was read."""
    idle_gpu_hours: float = 0.0
    """Of these, in which it was below 5 %."""

    @property
    def energy_kwh(self) -> float | None:
        """None: not known."""
        return self.energy.kilowatt_hours

    @property
    def energy_source(self) -> EnergySource:
        return self.energy.source


def usage_between(first: date, last: date, user: User, *, by: Period, team: str = "") -> list[Usage]:
    """Usage of the teams that the user may see from the first to the last day, newest first."""
    emulated = set(GpuType.objects.emulated().values_list("name", flat=True))
    days = _visible_to(user).filter(day__gte=first, day__lte=last)
    if team:
        days = days.filter(team__name=team)
    rows = (
        days.values(
            period=F("day") if by is Period.DAY else TruncMonth("day"),
            name=F("team__name"),
            kind=F("gpu_type__name"),
            price=F("gpu_type__price_per_hour"),
            power_w=F("gpu_type__power_w"),
        )
        .annotate(
            gpu_s=Sum("gpu_s"),
            work_gpu_s=Sum("work_gpu_s"),
            read_j=Sum("read_energy_j"),
            read_s=Sum("read_gpu_s"),
            watched_s=Sum("watched_gpu_s"),
            idle_s=Sum("idle_gpu_s"),
        )
        .order_by("-period", "name", "kind")
    )
    return [
        Usage(
            period=row["period"],
            team=row["name"],
            gpu_type=row["kind"],
            gpu_hours=row["gpu_s"] / 3600,
            work_gpu_hours=row["work_gpu_s"] / 3600,
            cost=row["gpu_s"] / 3600 * float(row["price"]),
            energy=Energy.of(
                read_j=row["read_j"],
                read_gpu_s=row["read_s"],
                gpu_s=row["gpu_s"],
                power_w=row["power_w"],
                emulated=row["kind"] in emulated,
            ),
            watched_gpu_hours=row["watched_s"] / 3600,
            idle_gpu_hours=row["idle_s"] / 3600,
        )
        for row in rows
    ]


def _visible_to(user: User) -> QuerySet[DailyUsage]:
    return DailyUsage.objects.all() if user.is_staff else DailyUsage.objects.filter(team__members=user)
