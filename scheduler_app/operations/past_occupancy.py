"""GPUs at a moment of the past: the jobs that held them, and the nodes that were down or out of service."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from cluster_app.models import Gpu, Node, NodeEvent
from jobs_app.models import Attempt, Job
from scheduler_app.models import GpuClaim
from scheduler_app.operations.gpu_occupancy import GpuCell, GpuCounts, NodeCells
from scheduler_app.timeline.outages import Outage
from scheduler_app.timeline.reading import Sight, read_outages

RETIRED = "retired"


@dataclass(frozen=True)
class JobThen:
    """A job that held GPUs at that moment, as the user may see it."""

    job: Job
    gpus: Mapping[str, int]
    """By GPU type."""


def gpus_by_node_at(user: User, at: datetime) -> list[NodeCells]:
    """Nodes of that moment with their GPUs, by type and name.

    Faults of single GPUs then, and GPUs that were taken out of their nodes since, are not known.
    """
    sight, holders = Sight.of(user), _holders(at)
    nodes = list(_nodes_of(at).select_related("gpu_type").order_by("gpu_type__name", "name"))
    out = {one.node: one for one in read_outages(at, [node.name for node in nodes]) if _covers(one, at)}
    cells: dict[int, list[GpuCell]] = defaultdict(list)
    for gpu in Gpu.objects.present().filter(node__in=nodes).select_related("node").order_by("index"):
        cells[gpu.node_id].append(_cell(gpu, holders.get(gpu.pk), out.get(gpu.node.name), sight))
    there = [node for node in nodes if node.name not in out or out[node.name].what != RETIRED]
    return [NodeCells(node, cells[node.pk]) for node in there]


def count_gpus(nodes: Iterable[NodeCells]) -> list[GpuCounts]:
    """GPUs per type and condition."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for held in nodes:
        counts[held.node.gpu_type.name].update(cell.condition for cell in held.cells)
    return [
        GpuCounts(name, n.total(), n["busy"], n["idle"], n["draining"], n["unhealthy"])
        for name, n in sorted(counts.items())
    ]


def jobs_of(nodes: Iterable[NodeCells]) -> Sequence[JobThen]:
    """Jobs on these GPUs, those with most GPUs first."""
    found: dict[Job, Counter[str]] = defaultdict(Counter)
    for held in nodes:
        for cell in held.cells:
            if cell.job is not None:
                found[cell.job][held.node.gpu_type.name] += 1
    most_first = sorted(found.items(), key=lambda item: (-item[1].total(), str(item[0])))
    return [JobThen(job, dict(gpus)) for job, gpus in most_first]


def _holders(at: datetime) -> dict[int, Attempt]:
    """Attempt that held each GPU then, by the GPU's key."""
    unreleased = Q(released_at=None) | Q(released_at__gt=at)
    claims = GpuClaim.objects.filter(unreleased, held_from__lte=at).select_related("attempt__job__team")
    return {claim.gpu_id: claim.attempt for claim in claims}


def _nodes_of(at: datetime) -> QuerySet[Node]:
    added_later = NodeEvent.objects.filter(kind=NodeEvent.Kind.ADDED, at__gt=at)
    return Node.objects.exclude(pk__in=added_later.values("node"))


def _covers(outage: Outage, at: datetime) -> bool:
    return outage.since <= at and (outage.until is None or outage.until > at)


def _cell(gpu: Gpu, attempt: Attempt | None, outage: Outage | None, sight: Sight) -> GpuCell:
    seen = attempt is not None and sight.sees(attempt.job.team_id)
    return GpuCell(
        gpu=gpu,
        condition=_condition(outage, busy=attempt is not None),
        job=attempt.job if attempt and seen else None,
        hidden=attempt is not None and not seen,
    )


def _condition(outage: Outage | None, *, busy: bool) -> str:
    if outage is not None:
        return "unhealthy" if outage.what == "down" else "draining"
    return "busy" if busy else "idle"
