"""Idle nodes that are not needed are put to sleep, as the controller decided; only those that a driver can wake."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from accounting_app.energy.drivers import driven
from accounting_app.energy.idle_nodes import IdleNode, nodes_that_may_sleep, read_idle_nodes
from accounting_app.energy.node_use import node_counts
from accounting_app.models import SleepAdvice
from allocation.node_sleep import nodes_to_sleep
from cluster_app.models import Node
from cluster_app.services import put_to_sleep

WHY = "not needed: {awake} of the nodes of its type should be awake"


def put_surplus_to_sleep(advice: Iterable[SleepAdvice], now: datetime) -> None:
    """Put to sleep what each advice does not want awake."""
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


def nodes_not_needed(advice: SleepAdvice, idle: list[IdleNode], *, awake: int, used: int) -> list[str]:
    """Idle nodes that are not needed, the longest idle first: as decided at the last step, and by the use now."""
    idle_s = {node.name: node.idle_s for node in idle}
    return nodes_to_sleep(idle_s, awake=awake, wanted=max(advice.awake, used))
