"""GPUs at a moment of the past: the jobs that held them, and the nodes that were down or out of service."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet

from cluster_app.models import Gpu, Node, NodeEvent
from insight_app.gpu_occupancy import JOB_OF_CLAIM, GpuCell, GpuCounts, NodeCells, cell_of, counts_by_type
from insight_app.timeline.reading import Viewer, read_outages
from jobs_app.models import Attempt, GpuClaim, Job

RETIRED, DOWN = "retired", "down"
FIRST_SAID = (RETIRED, DOWN)


@dataclass(frozen=True)
class JobThen:
    """A job that held GPUs at that moment, as the user may see it."""

    job: Job
    gpus: Mapping[str, int]
    """By GPU type."""


def gpus_by_node_at(user: User, at: datetime) -> list[NodeCells]:
    """Nodes of that moment with their GPUs, by type and name.

    Not known are faults of single GPUs, idle GPUs that were taken out of their nodes since, and when GPUs were added.
    """
    sight, holders = Viewer.of(user), _holders(at)
    nodes = list(_nodes_of(at).select_related("gpu_type").order_by("gpu_type__name", "name"))
    out = _outages_at(at, nodes)
    cells: dict[int, list[GpuCell]] = defaultdict(list)
    for gpu in _gpus_of(nodes, holders):
        attempt, outage = holders.get(gpu.pk), out.get(gpu.node.name, "")
        cells[gpu.node_id].append(cell_of(gpu, attempt, _condition(outage, busy=attempt is not None), sight))
    return [NodeCells(node, cells[node.pk]) for node in nodes if out.get(node.name) != RETIRED]


def count_gpus(nodes: Iterable[NodeCells]) -> list[GpuCounts]:
    """GPUs per type and condition."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for held in nodes:
        counts[held.node.gpu_type.name].update(cell.condition for cell in held.cells)
    return counts_by_type(counts)


def jobs_of(nodes: Iterable[NodeCells]) -> Sequence[JobThen]:
    """Jobs on these GPUs, the most GPUs first."""
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
    return {claim.gpu_id: claim.attempt for claim in claims.only("gpu", *JOB_OF_CLAIM)}


def _nodes_of(at: datetime) -> QuerySet[Node]:
    added_later = NodeEvent.objects.filter(kind=NodeEvent.Kind.ADDED, at__gt=at)
    return Node.objects.exclude(pk__in=added_later.values("node"))


def _gpus_of(nodes: Iterable[Node], holders: Collection[int]) -> QuerySet[Gpu]:
    """GPUs that are there, that a job held then, or that a node had when it was retired."""
    had = Q(node__state=Node.State.RETIRED, index__lt=F("node__retired_gpus"))
    gpus = Gpu.objects.filter(Q(present=True) | Q(pk__in=list(holders)) | had, node__in=nodes)
    return gpus.select_related("node").order_by("index")


def _outages_at(at: datetime, nodes: Iterable[Node]) -> dict[str, str]:
    """Why each node was out of service then; of several reasons the first of `FIRST_SAID`."""
    found: dict[str, str] = {}
    for outage in read_outages(at, [node.name for node in nodes]):
        if outage.since <= at and (outage.until is None or outage.until > at):
            found[outage.node] = min(outage.what, found.get(outage.node, outage.what), key=_precedence)
    return found


def _precedence(what: str) -> int:
    return FIRST_SAID.index(what) if what in FIRST_SAID else len(FIRST_SAID)


def _condition(outage: str, *, busy: bool) -> str:
    if outage:
        return "unhealthy" if outage == DOWN else "draining"
    return "busy" if busy else "idle"
