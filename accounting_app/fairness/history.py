"""History of fairness and utilization over a window, aggregated by the database into at most 200 points."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from math import ceil
from typing import Any

from django.db.models import F, Sum

from accounting_app.models import GpuTypeUsage, TeamUsage
from database.time_bucket import Bucket

HEAT_DAYS = 7
"""Days of the table by hour."""
QUARTER_S = 900
"""Offsets of time zones are multiples of it."""


@dataclass(frozen=True)
class Window:
    """Length of the window, and length of the interval behind each point."""

    words: str
    length: timedelta
    bucket: timedelta

    def since(self, now: datetime) -> datetime:
        """Begin of its first whole time bucket: means of a part of one would be too low."""
        begin, bucket_s = (now - self.length).timestamp(), self.bucket.total_seconds()
        return datetime.fromtimestamp(ceil(begin / bucket_s) * bucket_s, UTC)


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
    gpus: float = 0.0
    """Delivered work, in average GPUs; of a bucket that is not over, until now."""


def fairness(window: Window, now: datetime) -> list[Point]:
    """Share of delivered work and entitled share, per time bucket and team."""
    seconds = int(window.bucket.total_seconds())
    rows = list(
        TeamUsage.objects.filter(minute__gte=window.since(now))
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
            gpus=row["work"] / min(seconds, max(now.timestamp() - row["bucket"] * seconds, 1.0)),
        )
        for row in rows
    ]


def utilization(window: Window, now: datetime) -> list[Point]:
    """Utilization (busy over present GPU time) per time bucket and GPU type."""
    seconds = int(window.bucket.total_seconds())
    rows = (
        GpuTypeUsage.objects.filter(minute__gte=window.since(now))
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
class ClusterState:
    """GPUs of the cluster by what they did, and GPUs that waiting jobs asked for; means of a time bucket."""

    at: datetime
    busy: float
    starting: float
    out: float
    idle: float
    waiting: float

    @property
    def demand(self) -> float:
        """GPUs in use and asked for."""
        return self.busy + self.starting + self.waiting


def cluster_states(window: Window, now: datetime) -> list[ClusterState]:
    """States of GPUs and pending demand, per complete time bucket."""
    seconds = int(window.bucket.total_seconds())
    names = ("busy_gpu_s", "starting_gpu_s", "out_gpu_s", "present_gpu_s")
    since, bucket = window.since(now), Bucket(F("minute"), seconds=seconds)
    gpus = GpuTypeUsage.objects.filter(minute__gte=since).values(bucket=bucket)
    asked = TeamUsage.objects.filter(minute__gte=since).values(bucket=bucket)
    waiting = dict(asked.order_by().annotate(gpu_s=Sum("waiting_gpu_s")).values_list("bucket", "gpu_s"))
    rows = gpus.annotate(**{name: Sum(name) for name in names}).order_by("bucket")
    complete = [row for row in rows if (row["bucket"] + 1) * seconds <= now.timestamp()]
    return [_state(row, waiting.get(row["bucket"], 0.0), seconds) for row in complete]


def _state(row: Mapping[str, Any], waiting_gpu_s: float, seconds: int) -> ClusterState:
    busy, starting, out = row["busy_gpu_s"], row["starting_gpu_s"], row["out_gpu_s"]
    return ClusterState(
        at=datetime.fromtimestamp(row["bucket"] * seconds, UTC),
        busy=busy / seconds,
        starting=starting / seconds,
        out=out / seconds,
        idle=max(row["present_gpu_s"] - busy - starting - out, 0.0) / seconds,
        waiting=waiting_gpu_s / seconds,
    )


@dataclass(frozen=True)
class DayOfUse:
    """Utilization in each hour of a day (UTC); None: no GPUs were registered."""

    day: date
    hours: Sequence[float | None]


def hours_of_days(now: datetime, zone: tzinfo = UTC) -> list[DayOfUse]:
    """Utilization by day and hour in this time zone, the latest day first."""
    first = now.astimezone(zone).date() - timedelta(days=HEAT_DAYS - 1)
    since = datetime.combine(first, time(), zone)
    rows = GpuTypeUsage.objects.filter(minute__gte=since).values(bucket=Bucket(F("minute"), seconds=QUARTER_S))
    busy: dict[tuple[date, int], float] = defaultdict(float)
    present: dict[tuple[date, int], float] = defaultdict(float)
    for row in rows.order_by().annotate(busy=Sum("busy_gpu_s"), present=Sum("present_gpu_s")):
        at = datetime.fromtimestamp(row["bucket"] * QUARTER_S, zone)
        busy[at.date(), at.hour] += row["busy"]
        present[at.date(), at.hour] += row["present"]
    used = {hour: busy[hour] / there for hour, there in present.items() if there}
    days = [first + timedelta(days=n) for n in reversed(range(HEAT_DAYS))]
    shown = [DayOfUse(day, [used.get((day, hour)) for hour in range(24)]) for day in days]
    return [one for one in shown if any(hour is not None for hour in one.hours)]


@dataclass(frozen=True)
class TypeUse:
    """Busy and present GPU-hours of a GPU type over a window."""

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
