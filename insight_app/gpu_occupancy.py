"""GPUs with their condition and the attempts that hold them: by node, by type, and counted by the database."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from cluster_app.models import Gpu, Node
from insight_app.timeline.reading import Viewer
from jobs_app.models import Attempt, GpuClaim, Job

CONDITIONS = ("busy", "idle", "draining", "unhealthy")
JOB_OF_CLAIM = tuple(f"attempt__job__{name}" for name in ("name", "array_index", "team__name"))
"""Columns of the job behind a claim that pages show."""


def nodes_with_gpus() -> QuerySet[Node]:
    """Nodes annotated with `gpus`, `slow_gpus` and `busy_gpus`."""
    busy = (
        GpuClaim.objects.holding()
        .filter(gpu__node=OuterRef("pk"), gpu__present=True)
        .order_by()
        .values("gpu__node")
        .annotate(count=Count("pk"))
        .values("count")
    )
    return Node.objects.with_gpu_counts().select_related("gpu_type").annotate(busy_gpus=Coalesce(Subquery(busy), 0))


def gpus_with_holders(nodes: Collection[Node]) -> list[tuple[Gpu, Attempt | None]]:
    """GPUs of these nodes, each with the attempt that holds it, ordered by index."""
    holding = GpuClaim.objects.holding().filter(gpu__node__in=nodes).select_related("attempt__job__team")
    holder = {claim.gpu_id: claim.attempt for claim in holding.only("gpu", *JOB_OF_CLAIM)}
    gpus = Gpu.objects.present().filter(node__in=nodes).select_related("node")
    return [(gpu, holder.get(gpu.pk)) for gpu in gpus.order_by("index")]


def condition_of(gpu: Gpu, *, busy: bool) -> str:
    """Condition of a GPU: unhealthy, draining, busy or idle, the first that applies."""
    return _condition(gpu.healthy, gpu.node.health, gpu.node.state, gpu.node.engine_reason, busy)


def _condition(healthy: bool, health: str, state: str, engine_reason: str, busy: bool) -> str:
    if not healthy or (health != Node.Health.HEALTHY and state != Node.State.DRAINED):
        return "unhealthy"  # a drained node may be silent: it was repaired, or its owner has it back
    if state != Node.State.READY or engine_reason:
        return "draining"
    return "busy" if busy else "idle"


@dataclass(frozen=True)
class GpuCounts:
    """Number of GPUs of a type in each condition."""

    gpu_type: str
    total: int
    busy: int
    idle: int
    draining: int
    unhealthy: int


def gpu_counts() -> list[GpuCounts]:
    """GPUs per type and condition, counted by the database."""
    busy = Exists(GpuClaim.objects.holding().filter(gpu=OuterRef("pk")))
    columns = ("node__gpu_type__name", "healthy", "node__health", "node__state", "node__engine_reason", "is_busy")
    alike = Gpu.objects.present().annotate(is_busy=busy).order_by().values_list(*columns).annotate(Count("pk"))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, *condition, count in alike:
        counts[name][_condition(*condition)] += count
    for name, foreign in Node.objects.filter(foreign_gpus__gt=0).values_list("gpu_type__name", "foreign_gpus"):
        used = min(foreign, counts[name]["idle"])  # by jobs outside Motley
        counts[name].update(idle=-used, busy=used)
    return counts_by_type(counts)


def counts_by_type(counts: Mapping[str, Counter[str]]) -> list[GpuCounts]:
    """Counts of conditions, GPU type by GPU type in the order of their names. Pure."""
    return [
        GpuCounts(name, n.total(), *(n[condition] for condition in CONDITIONS)) for name, n in sorted(counts.items())
    ]


@dataclass(frozen=True)
class GpuCell:
    """One GPU with its condition, and the job on it if the user may see it."""

    gpu: Gpu
    condition: str
    job: Job | None
    hidden: bool
    """A job runs on it that the user may not see."""

    @property
    def words(self) -> str:
        """The condition as pages show it; `draining` includes cordoned GPUs, so that it reads "out of service"."""
        return "out of service" if self.condition == "draining" else self.condition


@dataclass(frozen=True)
class NodeCells:
    node: Node
    cells: list[GpuCell]


def gpus_by_node(user: User, nodes: Collection[Node]) -> list[NodeCells]:
    """These nodes with their GPUs, as the user may see them."""
    sight = Viewer.of(user)
    cells: dict[int, list[GpuCell]] = defaultdict(list)
    for gpu, attempt in gpus_with_holders(nodes):
        cells[gpu.node_id].append(cell_of(gpu, attempt, condition_of(gpu, busy=attempt is not None), sight))
    return [NodeCells(node, cells[node.pk]) for node in nodes]


def cell_of(gpu: Gpu, attempt: Attempt | None, condition: str, sight: Viewer) -> GpuCell:
    """A GPU and the job of the attempt that holds it, if the user may see it."""
    seen = attempt is not None and sight.sees(attempt.job.team_id)
    return GpuCell(
        gpu=gpu,
        condition=condition,
        job=attempt.job if attempt and seen else None,
        hidden=attempt is not None and not seen,
    )
