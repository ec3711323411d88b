"""Readings of GPUs: time series, summaries of an attempt's GPUs over its run, and each GPU now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Avg, F, Max, QuerySet
from django.db.models.expressions import Combinable

from accounting_app.gpu_watch.minutes import minute_of
from accounting_app.models import GpuMinute
from cluster_app.models import Gpu
from database.time_bucket import Bucket
from engines.protocol import Throttle
from jobs_app.models import Attempt

MOST_POINTS = 200
"""Of a course: longer intervals stand for longer times."""
MINUTE_S = 60
NOW = timedelta(minutes=2)
"""The newest minute within this time counts as now."""
THROTTLED_BY = {
    Throttle.SW_POWER_CAP: "power limit",
    Throttle.HW_SLOWDOWN: "hardware slowdown",
    Throttle.SW_THERMAL: "temperature",
    Throttle.HW_THERMAL: "temperature (hardware)",
    Throttle.HW_POWER_BRAKE: "power brake",
}


@dataclass(frozen=True)
class UsePoint:
    """Mean over an interval of one GPU, or of all GPUs of an attempt; None: the driver does not say."""

    at: datetime
    """Start of the interval."""
    name: str
    """The GPU; empty: all."""
    utilization: float | None
    """Per cent."""
    memory_used_mib: float | None
    power_w: float | None
    temperature_c: float | None
    """The highest."""


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over the run of an attempt."""

    node: str
    index: int
    utilization: float | None
    """Per cent, the mean."""
    memory_used_max_mib: float | None
    power_w: float | None
    temperature_max_c: float | None
    ecc_errors: int | None
    slower_by: float
    """Than others of its type, a part of 1, as jobs tell now; 0: it is not known to be slow."""


@dataclass(frozen=True)
class GpuNow:
    """One GPU in the last minute that was read; None: the driver does not say."""

    node: str
    index: int
    emulated: bool
    uuid: str
    gpu_type: str
    job: UUID | None
    utilization: float | None
    memory_used_mib: float | None
    power_w: float | None
    temperature_c: float | None
    ecc_errors: int | None
    throttle: int

    @property
    def throttled_by(self) -> list[str]:
        return throttle_words(Throttle(self.throttle))


def throttle_words(reasons: Throttle) -> list[str]:
    return [words for reason, words in THROTTLED_BY.items() if reason in reasons]


def course_of_attempt(attempt: Attempt, now: datetime) -> list[UsePoint]:
    """Mean of all GPUs of an attempt over its run."""
    if attempt.started_at is None:
        return []
    rows = GpuMinute.objects.filter(attempt=attempt)
    return _course(rows, bucket_s((attempt.ended_at or now) - attempt.started_at), by_gpu=False)


def course_of_node(node: int, since: datetime, now: datetime) -> list[UsePoint]:
    """Each GPU of a node since then."""
    gpus = list(Gpu.objects.present().filter(node=node).values_list("pk", flat=True))
    return _course(GpuMinute.objects.filter(gpu__in=gpus, minute__gte=since), bucket_s(now - since), by_gpu=True)


def bucket_s(length: timedelta) -> int:
    """Length of an interval in seconds, in whole minutes, so that no more than `MOST_POINTS` cover the time."""
    minutes = -(-length // timedelta(minutes=MOST_POINTS))
    return MINUTE_S * max(1, minutes)


def _course(rows: QuerySet[GpuMinute], seconds: int, *, by_gpu: bool) -> list[UsePoint]:
    groups: list[Combinable] = [Bucket(F("minute"), seconds=seconds), *([F("gpu__index")] if by_gpu else [])]
    of_groups = rows.order_by().values_list(*groups)
    figures = of_groups.annotate(
        Avg("utilization"), Avg("memory_used_mib"), Avg("power_w"), Max("temperature_max_c")
    ).order_by(*groups)
    return [
        UsePoint(datetime.fromtimestamp(bucket * seconds, UTC), f"GPU {of[0]}" if of else "", *means)
        for bucket, *of, means in ((*row[: len(groups)], row[len(groups) :]) for row in figures)
    ]


def summaries(attempt: Attempt) -> list[GpuSummary]:
    """Each GPU of an attempt over its run, by node and index."""
    rows = GpuMinute.objects.filter(attempt=attempt).order_by().values_list("gpu__node__name", "gpu__index")
    highest = (Max("temperature_max_c"), Max("ecc_errors"), Max("gpu__slower_by"))
    figures = rows.annotate(Avg("utilization"), Max("memory_used_max_mib"), Avg("power_w"), *highest)
    return [GpuSummary(*row) for row in figures.order_by("gpu__node__name", "gpu__index")]


def latest_watched(attempts: Sequence[Attempt]) -> Attempt | None:
    """The latest of a job's attempts with readings of GPUs."""
    watched = GpuMinute.objects.filter(attempt__in=[attempt.pk for attempt in attempts])
    newest = watched.aggregate(newest=Max("attempt"))["newest"]
    return next((attempt for attempt in attempts if attempt.pk == newest), None)


def gpus_now(now: datetime, node: int | None = None) -> list[GpuNow]:
    """Last readings of the node's GPUs, or of all; without GPUs that were not read in the last two minutes."""
    rows = GpuMinute.objects.filter(minute__gt=minute_of(now) - NOW)
    of_node = rows.filter(gpu__node=node) if node is not None else rows
    columns = ("utilization", "memory_used_mib", "power_w", "temperature_c", "ecc_errors", "throttle")
    names = ("gpu__node__name", "gpu__index", "gpu__node__emulated", "gpu__uuid", "gpu__node__gpu_type__name")
    newest = {
        row[:2]: GpuNow(*row) for row in of_node.order_by("minute", "pk").values_list(*names, "attempt__job", *columns)
    }
    return [newest[key] for key in sorted(newest)]


def energy_j(attempts: Sequence[Attempt]) -> float | None:
    """Energy of the GPUs of these attempts, as far as it was read; None if nothing was read."""
    read = [attempt.gpu_energy_j for attempt in attempts if attempt.gpu_energy_j is not None]
    return sum(read) if read else None
