"""Outlook of a waiting job: its place in the queue, the GPUs that others hold, when a start is expected, and nodes
that are being woken."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.humanize.templatetags.humanize import ordinal
from django.utils import timezone

from accounting_app.energy.wake import FOR_CAPACITY
from cluster_app.models import GpuType, Node, NodePower
from insight_app.explain.dry_run_inputs import FreeOnNode, free_on_nodes, row_of
from insight_app.start_forecasts.showing import Interval, ShownForecast, read_forecast
from jobs_app.models import Job
from scheduler_app.windows.reading import read_windows


@dataclass(frozen=True)
class QueueOutlook:
    """Place among the jobs that wait, and the GPUs in service that the job may use."""

    place: int
    queue: int
    gpus: int
    held_gpus: int
    start: Interval
    made_at: datetime

    @property
    def detail(self) -> str:
        """The same in words, without the times."""
        return f"{ordinal(self.place)} of {self.queue:,} that wait; {self._held}"

    @property
    def _held(self) -> str:
        free = self.gpus - self.held_gpus
        named = f"{self.gpus:,} GPU{'s' * (self.gpus != 1)} that it may use"
        if not free:
            return f"other jobs hold all {named}" if self.gpus > 1 else f"another job holds the {named}"
        return f"{free:,} of the {named} {'are' if free > 1 else 'is'} free"


def queue_outlook(job: Job) -> QueueOutlook | None:
    """Outlook of a job; None if it does not wait, or has no forecast."""
    found = read_forecast(job)
    if found is None or found.start is None:
        return None
    kinds = set(GpuType.objects.filter(name__in=job.gpu_types).values_list("pk", flat=True)) if job.gpu_types else None
    closed = _reserved_for_others(job, timezone.now())
    nodes = [node for node in free_on_nodes(row_of(job).needs) if node.has_storage and node.id not in closed]
    return _outlook(found, found.start, [node for node in nodes if kinds is None or node.gpu_type_id in kinds])


def _reserved_for_others(job: Job, now: datetime) -> frozenset[int]:
    """Nodes that are reserved for another team now."""
    going_on = [row for row in read_windows(now) if row.covers(now) and row.team_id not in (None, job.team_id)]
    return frozenset[int]().union(*(row.nodes for row in going_on))


def _outlook(found: ShownForecast, start: Interval, nodes: Sequence[FreeOnNode]) -> QueueOutlook:
    gpus, free = (sum(getattr(node, name) for node in nodes) for name in ("gpus", "free_gpus"))
    return QueueOutlook(found.place, found.queue, gpus, gpus - free, start, found.made_at)


@dataclass(frozen=True)
class WakingNode:
    """A node that was woken and has not reported yet. Nodes of its GPU type boot within `boot_s`."""

    node: str
    gpu_type: str
    since: datetime
    boot_s: int

    @property
    def expected_at(self) -> datetime:
        return self.since + timedelta(seconds=self.boot_s)


def waking_nodes(job: Job) -> list[WakingNode]:
    """Waking nodes of the GPU types that a job waiting for capacity may use, the next to boot first; else none."""
    if job.state != Job.State.QUEUED or job.reason not in FOR_CAPACITY:
        return []
    rows = NodePower.objects.filter(node__state=Node.State.WAKING)
    if job.gpu_types:
        rows = rows.filter(node__gpu_type__name__in=job.gpu_types)
    columns = rows.values_list("node__name", "node__gpu_type__name", "since", "node__gpu_type__boot_s")
    return sorted((WakingNode(*row) for row in columns), key=lambda node: (node.expected_at, node.node))
