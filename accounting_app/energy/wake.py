"""Waking of nodes for jobs that a round could not place: first fit, in the order of submission."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count

from accounting_app.energy.advice import parameters_of
from accounting_app.energy.node_power import driven, is_driven
from accounting_app.energy.node_use import node_counts, nodes_with_gpus
from allocation.time_budget import UNLIMITED, TimeBudget
from cluster_app.feasibility import NodeShape, Request, fits
from cluster_app.lending import takes_jobs
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.services import wake
from cluster_app.storage import StoragePaths
from jobs_app.models import GpuClaim, Job, Reason
from jobs_app.submission.admission import request_of
from jobs_app.submission.volunteers import volunteers_now

MOST_JOBS = 1000
LONGEST_S = 2.0
"""The loop of rounds waits for it."""
FOR_CAPACITY = (
    Reason.NO_HEALTHY_NODE,
    Reason.INSUFFICIENT_GPUS,
    Reason.FRAGMENTED,
    Reason.OUTBID,
    Reason.NEXT_ROUND,
)
"""Headline reasons of jobs for which more nodes help."""
REQUESTED = (
    "gpus_min",
    "gpu_types",
    "gpu_memory_mib",
    "cpus_per_gpu",
    "memory_per_gpu_mib",
    "uneven_gang",
    "gpus_per_replica",
    "mounts",
    "image",
)


class Option(NamedTuple):
    """A gang on one GPU type, and the nodes that have to be woken for it."""

    gpu_type: str
    gpus: int
    names: list[str]


@dataclass
class NodePools:
    """Nodes by name with the GPUs that are left on them, as gangs are given theirs."""

    coming: dict[str, NodeShape]
    """They are being woken."""
    asleep: dict[str, NodeShape]
    """In the order in which they are woken."""
    free: Mapping[str, NodeShape]
    """Of awake nodes: the round could place nothing more on these alone."""
    woken: list[str] = field(default_factory=list)
    unfit: set[Request] = field(default_factory=set)
    """Gangs that did not fit on what is left: the next like it does not either, until GPUs are taken."""

    def serve(self, request: Request) -> None:
        """Give a gang its GPUs on the type where the fewest nodes have to be woken; nothing if it does not fit."""
        if request not in self.unfit and not self._serve(request):
            self.unfit.add(request)

    def _serve(self, request: Request) -> bool:
        kinds = sorted({node.gpu_type for node in (*self.coming.values(), *self.asleep.values())})
        allowed = [kind for kind in kinds if not request.gpu_types or kind in request.gpu_types]
        options = [option for kind in allowed if (option := self._option(request.on(kind), kind)) is not None]
        if options:
            self._take(min(options, key=lambda option: len(option.names)))
        return bool(options)

    def _option(self, gang: Request, kind: str) -> Option | None:
        """The fewest nodes of this type to be woken for the gang; None: it does not fit on all of them."""
        coming, free = _of(self.coming, kind), _of(self.free, kind)
        if fits(gang, [*coming.values()]):
            return Option(kind, gang.gpus, [])
        asleep = _of(self.asleep, kind)

        def holds(count: int) -> bool:
            return fits(gang, [*coming.values(), *[*asleep.values()][:count], *free.values()])

        if not asleep or not holds(len(asleep)):
            return None
        count = bisect_left(range(len(asleep)), True, lo=1, key=holds)
        return Option(kind, gang.gpus, [*asleep][:count])

    def _take(self, option: Option) -> None:
        """Wake the option's nodes, and take its GPUs from nodes that are coming; the rest is on awake ones."""
        self.coming |= {name: self.asleep.pop(name) for name in option.names}
        self.woken += option.names
        left = option.gpus
        for name, node in reversed(_of(self.coming, option.gpu_type).items()):
            taken = min(left, node.gpus)
            self.coming[name] = replace(node, gpus=node.gpus - taken)
            left -= taken


def _of(nodes: Mapping[str, NodeShape], gpu_type: str) -> dict[str, NodeShape]:
    return {name: node for name, node in nodes.items() if node.gpu_type == gpu_type}


def nodes_to_wake(
    waiting: Iterable[Request], pools: NodePools, reserve: Mapping[str, int], budget: TimeBudget = UNLIMITED
) -> list[str]:
    """Names of the nodes that these gangs need, and a reserve of each type of which some are woken.

    First fit; when the time is up, the gangs that are left wait for the next round.
    """
    for request in waiting:
        if budget.passed():
            break
        pools.serve(request)
    kinds = sorted({pools.coming[name].gpu_type for name in pools.woken})
    return [*pools.woken, *(name for kind in kinds for name in [*_of(pools.asleep, kind)][: reserve.get(kind, 0)])]


def wake_for_waiting_jobs(now: datetime) -> None:
    """Wake the nodes that the jobs need which the last round left waiting for capacity. Idempotent."""
    if not driven(Node.objects.filter(state=Node.State.SLEEPING)).exists():
        return
    if waiting := read_waiting(now):
        names = nodes_to_wake(waiting, read_pools(now), read_reserve(), TimeBudget.after(LONGEST_S))
        for node in Node.objects.filter(name__in=names, state=Node.State.SLEEPING):
            wake(node, reason=f"jobs that wait for nodes: {len(waiting)}", now=now)


def read_waiting(now: datetime) -> list[Request]:
    """Requests of jobs that the last round left waiting for capacity, in the order of submission."""
    jobs = Job.objects.schedulable(now).filter(reason__in=FOR_CAPACITY).order_by("pk")
    rows = jobs.values_list(*REQUESTED, volunteers_now())[:MOST_JOBS]
    return [request_of(dict(zip((*REQUESTED, "volunteers"), row, strict=True))) for row in rows]


def read_pools(now: datetime) -> NodePools:
    """Free GPUs of nodes that wake, sleep or are awake, without nodes that their owners have back."""
    usable = set(Node.objects.schedulable().values_list("pk", flat=True))
    gpus = dict(Gpu.objects.present().order_by().values_list("node").annotate(Count("pk")))
    claimed = dict(GpuClaim.objects.open().order_by().values_list("gpu__node").annotate(Count("gpu", distinct=True)))
    paths = StoragePaths.read()
    waking, sleeping, ready = Node.State.WAKING, Node.State.SLEEPING, Node.State.READY
    pools: dict[str, dict[str, NodeShape]] = {waking: {}, sleeping: {}, ready: {}}
    for node in nodes_with_gpus().select_related("gpu_type", "engine").defer("engine__inventory").order_by("name"):
        comes = node.state == waking or (node.state == sleeping and is_driven(node))
        if (node.pk in usable or comes) and takes_jobs(node, now):
            left = gpus[node.pk] - claimed.get(node.pk, 0) - node.foreign_gpus
            pools[node.state][node.name] = NodeShape.of(node, max(left, 0), paths)
    return NodePools(coming=pools[waking], asleep=pools[sleeping], free=pools[ready])


def read_reserve() -> dict[str, int]:
    """Nodes that are woken beyond those that are needed, by GPU type."""
    names = dict(GpuType.objects.values_list("pk", "name"))
    return {names[kind]: parameters_of(count.nodes).reserve for kind, count in node_counts().items()}
