"""Nodes in use per GPU type: recorded by rounds in steps of ten minutes, and read as a series without gaps."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import numpy as np
from django.db.models import Count, Exists, OuterRef, QuerySet

from accounting_app.models import NodeUse
from cluster_app.models import Gpu, Node
from estimation.node_demand import DAY_H, WEEK_H, NodeDemand
from jobs_app.models import GpuClaim

STEP = timedelta(minutes=10)
STEP_H = STEP / timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def step_of(now: datetime) -> int:
    """Number of the step that contains this time."""
    return (now - EPOCH) // STEP


def start_of(step: int) -> datetime:
    return EPOCH + step * STEP


@dataclass(frozen=True)
class NodeCounts:
    """Nodes with GPUs of one type: how many there are, have a claim on one of their GPUs, and sleep."""

    nodes: int
    used: int
    asleep: int


def record_node_use(now: datetime) -> None:
    """Record the nodes in use; inside a round's transaction, after its starts: between rounds their number only falls.

    Idempotent: the most of a step is kept.
    """
    at = start_of(step_of(now))
    most: dict[int, int] = defaultdict(int, NodeUse.objects.filter(at=at).values_list("gpu_type", "used"))
    rows = [
        NodeUse(gpu_type_id=kind, at=at, used=max(count.used, most[kind]), nodes=count.nodes, asleep=count.asleep)
        for kind, count in node_counts().items()
    ]
    NodeUse.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["gpu_type", "at"], update_fields=["used", "nodes", "asleep"]
    )


def node_counts() -> dict[int, NodeCounts]:
    """Nodes by GPU type, whatever their state."""
    nodes = dict(_per_type(nodes_with_gpus()))
    asleep = dict(_per_type(nodes_with_gpus().filter(state=Node.State.SLEEPING)))
    claims = GpuClaim.objects.open().order_by().values_list("gpu__node__gpu_type")
    used = dict(claims.annotate(Count("gpu__node", distinct=True)))
    return {kind: NodeCounts(count, used.get(kind, 0), asleep.get(kind, 0)) for kind, count in nodes.items()}


def nodes_with_gpus() -> QuerySet[Node]:
    return Node.objects.filter(Exists(Gpu.objects.present().filter(node=OuterRef("pk"))))


def _per_type(nodes: QuerySet[Node]) -> Iterator[tuple[int, int]]:
    yield from nodes.order_by().values_list("gpu_type").annotate(Count("pk"))


def read_node_demand(gpu_type: int, *, since: datetime, until: datetime) -> NodeDemand | None:
    """The series from the first step in this period to the last whole one before `until`; None if there is none.

    A step without a round, as while the service was off, has the value before it.
    """
    rows = NodeUse.objects.filter(gpu_type=gpu_type, at__gte=since, at__lt=until).order_by("at")
    used = {step_of(at): used for at, used in rows.values_list("at", "used")}
    if not used:
        return None
    first = min(used)
    filled = accumulate(range(first, step_of(until)), lambda before, step: used.get(step, before), initial=0)
    return NodeDemand(np.array([*filled][1:], dtype=float), STEP_H, _hour_of_the_week(start_of(first)))


def _hour_of_the_week(at: datetime) -> float:
    monday = datetime(1970, 1, 5, tzinfo=UTC)
    return (at - monday) / timedelta(hours=1) % WEEK_H


LONG_ENOUGH = timedelta(hours=WEEK_H + 2 * DAY_H)
"""Of history, for a forecast by a fitted regression."""
