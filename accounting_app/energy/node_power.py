"""Power of nodes: how they are switched, which are idle, and the rule by which they sleep."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from accounting_app.energy.node_use import node_counts, nodes_with_gpus
from accounting_app.models import SleepAdvice
from allocation.node_sleep import nodes_to_sleep
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Node, NodeEvent
from cluster_app.services import put_to_sleep
from jobs_app.models import GpuClaim


def has_commands() -> bool:
    """Whether the site has given both commands, which serve the nodes of all engines without power saving."""
    return bool(settings.MOTLEY_NODE_SLEEP and settings.MOTLEY_NODE_WAKE)


def is_driven(node: Node) -> bool:
    """Whether the node can be put to sleep and woken."""
    return node.engine.saves_power or has_commands()


def driven(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Nodes that can be put to sleep and woken."""
    return nodes if has_commands() else nodes.filter(engine__options__power_saving=True)


WHY = "not needed: {awake} of the nodes of its type should be awake"


def put_surplus_to_sleep(advice: Iterable[SleepAdvice], now: datetime) -> None:
    """Put to sleep the nodes that the advice of their type does not keep awake."""
    counts, idle, awake = node_counts(), read_idle_nodes(now, driven(nodes_that_may_sleep())), awake_counts()
    for one in advice:
        kind = one.gpu_type_id
        if kind not in counts:  # its last node was removed meanwhile
            continue
        names = nodes_not_needed(one, idle.get(kind, []), awake=awake[kind], used=counts[kind].used)
        for node in Node.objects.filter(name__in=names):
            put_to_sleep(node, reason=WHY.format(awake=one.awake), now=now)


def awake_counts() -> Counter[int]:
    """Nodes in service, and those that are being woken, by GPU type."""
    counts = Counter(nodes_that_may_sleep().values_list("gpu_type", flat=True))
    counts.update(Node.objects.filter(state=Node.State.WAKING).values_list("gpu_type", flat=True))
    return counts


@dataclass(frozen=True)
class IdleNode:
    """A node that no attempt holds or waits for."""

    name: str
    idle_s: float


def nodes_not_needed(advice: SleepAdvice, idle: list[IdleNode], *, awake: int, used: int) -> list[str]:
    """Idle nodes that the last decision and the present use do not need, the longest idle first."""
    idle_s = {node.name: node.idle_s for node in idle}
    return nodes_to_sleep(idle_s, awake=awake, wanted=max(advice.awake, used))


LONGEST_IDLE = timedelta(days=7)
"""Releases before are not read: nodes that have been idle for longer count alike."""


def nodes_that_may_sleep() -> QuerySet[Node]:
    """Nodes in service with GPUs, used or not, except this machine, which runs the scheduler."""
    this_machine = Q(engine=LOCAL_ENGINE, emulated=False)
    return nodes_with_gpus().filter(pk__in=Node.objects.schedulable().values("pk")).exclude(this_machine)


def unclaimed(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Nodes without claims on their GPUs and without use by jobs outside Motley."""
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
