"""Idle nodes that may sleep, and since when each has been idle."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from accounting_app.energy.node_use import nodes_with_gpus
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Node, NodeEvent
from jobs_app.models import GpuClaim

LONGEST_IDLE = timedelta(days=7)
"""Releases before are not read: nodes that have been idle for longer count alike."""


@dataclass(frozen=True)
class IdleNode:
    """A node that no attempt holds or waits for."""

    name: str
    idle_s: float


def nodes_that_may_sleep() -> QuerySet[Node]:
    """Nodes in service with GPUs, used or not, but those of this machine: with them the scheduler would sleep."""
    this_machine = Q(engine=LOCAL_ENGINE, emulated=False)
    return nodes_with_gpus().filter(pk__in=Node.objects.schedulable().values("pk")).exclude(this_machine)


def unclaimed(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Those on which no GPU is held or waited for, and of which jobs outside Motley use nothing."""
    claimed = Exists(GpuClaim.objects.open().filter(gpu__node=OuterRef("pk")))
    return nodes.filter(~claimed, **dict.fromkeys(FOREIGN_USE, 0))


def read_idle_nodes(now: datetime, among: QuerySet[Node] | None = None) -> dict[int, list[IdleNode]]:
    """Idle nodes that may sleep, by GPU type: idle since a job last left them, or they came into service."""
    nodes = nodes_that_may_sleep() if among is None else among
    longest_ago = now - LONGEST_IDLE
    released, returned = _last_releases(longest_ago), _last_returns(longest_ago)
    found: dict[int, list[IdleNode]] = defaultdict(list)
    for pk, name, kind in unclaimed(nodes).values_list("pk", "name", "gpu_type"):
        since = max(released.get(pk, longest_ago), returned.get(pk, longest_ago))
        found[kind].append(IdleNode(name, (now - since).total_seconds()))
    return found


def _last_releases(since: datetime) -> dict[int, datetime]:
    ended = GpuClaim.objects.filter(released_at__gt=since).order_by().values_list("gpu__node")
    return dict(ended.annotate(Max("released_at")))


def _last_returns(since: datetime) -> dict[int, datetime]:
    """When nodes were last awake again, or resumed."""
    kinds = (NodeEvent.Kind.AWAKE, NodeEvent.Kind.RESUMED)
    events = NodeEvent.objects.filter(kind__in=kinds, at__gt=since).order_by().values_list("node")
    return dict(events.annotate(Max("at")))
