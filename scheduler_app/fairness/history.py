"""History of fairness and utilization over a window, aggregated by the database into at most 200 points."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F, Sum

from database.time_bucket import Bucket
from scheduler_app.models import GpuTypeUsage, TeamUsage


@dataclass(frozen=True)
class Window:
    """Length of the window, and length of the interval behind each point."""

    words: str
    length: timedelta
    bucket: timedelta


WINDOWS = {
    "1h": Window("the last hour", timedelta(hours=1), timedelta(minutes=1)),
    "24h": Window("the last 24 hours", timedelta(hours=24), timedelta(minutes=10)),
    "7d": Window("the last 7 days", timedelta(days=7), timedelta(hours=1)),
}


@dataclass(frozen=True)
class Point:
    """Share of a team in delivered work, or utilization of a GPU type, in one time bucket."""

    at: datetime
    name: str
    value: float
    fair: float | None = None


def fairness(window: Window, now: datetime) -> list[Point]:
    """Share of delivered work and entitled share, per time bucket and team."""
    seconds = int(window.bucket.total_seconds())
    rows = list(
        TeamUsage.objects.filter(minute__gt=now - window.length)
        .values(bucket=Bucket(F("minute"), seconds=seconds), name=F("team__name"))
        .annotate(work=Sum("work_gpu_s"), entitled=Sum("entitled_share_s"))
        .order_by("bucket", "name")
    )
    work, entitled = _totals(rows, "work"), _totals(rows, "entitled")
    return [
        Point(
            at=datetime.fromtimestamp(row["bucket"] * seconds, UTC),
            name=row["name"],
            value=row["work"] / (work[row["bucket"]] or 1.0),
            fair=row["entitled"] / (entitled[row["bucket"]] or 1.0),
        )
        for row in rows
    ]


def utilization(window: Window, now: datetime) -> list[Point]:
    """Utilization (busy over present GPU time) per time bucket and GPU type."""
    seconds = int(window.bucket.total_seconds())
    rows = (
        GpuTypeUsage.objects.filter(minute__gt=now - window.length)
        .values(bucket=Bucket(F("minute"), seconds=seconds), name=F("gpu_type__name"))
        .annotate(busy=Sum("busy_gpu_s"), present=Sum("present_gpu_s"))
        .order_by("bucket", "name")
    )
    return [
        Point(
            at=datetime.fromtimestamp(row["bucket"] * seconds, UTC),
            name=row["name"],
            value=row["busy"] / row["present"] if row["present"] else 0.0,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class TypeUse:
    """Busy and present GPU hours of a GPU type over a window."""

    gpu_type: str
    busy_gpu_h: float
    present_gpu_h: float

    @property
    def busy(self) -> float:
        return self.busy_gpu_h / self.present_gpu_h if self.present_gpu_h else 0.0


def type_uses(since: datetime) -> list[TypeUse]:
    """Utilization of each GPU type since then, by name."""
    rows = GpuTypeUsage.objects.filter(minute__gt=since).values_list("gpu_type__name")
    sums = rows.annotate(Sum("busy_gpu_s"), Sum("present_gpu_s")).order_by("gpu_type__name")
    return [TypeUse(name, busy / 3600, present / 3600) for name, busy, present in sums]


def _totals(rows: Iterable[Mapping[str, Any]], name: str) -> dict[int, float]:
    totals: dict[int, float] = {}
    for row in rows:
        totals[row["bucket"]] = totals.get(row["bucket"], 0.0) + row[name]
    return totals
