"""Nodes in forecasts: some that are out of service return, after a maintenance or once they are woken.

A node that sleeps is woken for the jobs that wait, as `accounting_app.energy.wake` does: it takes jobs after its boot
time. One that is being woken takes them once that is over.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from accounting_app.energy.node_power import is_driven
from cluster_app.lending import takes_jobs
from cluster_app.models import POWERED_DOWN, Node, NodePower
from estimation.types import Floats
from scheduler_app.round.inputs import NodeRow

LATE = 0.1
"""Part of its boot time that a node which should be awake by now is taken to need still."""


def read_boots(now: datetime) -> dict[int, float]:
    """Node → seconds until it takes jobs, of those that sleep and can be woken, and those that are being woken."""
    rows = NodePower.objects.filter(node__state__in=POWERED_DOWN, node__engine__enabled=True)
    found = rows.select_related("node__gpu_type", "node__engine").defer("node__engine__inventory")
    return {row.node_id: boot_left_s(row, now) for row in found if takes_jobs(row.node, now) and _comes(row)}


def _comes(row: NodePower) -> bool:
    return row.node.state == Node.State.WAKING or is_driven(row.node)


def boot_left_s(row: NodePower, now: datetime) -> float:
    """Seconds until the node takes jobs, if it begins to be woken now or has begun before. Pure."""
    boot_s = float(row.node.gpu_type.boot_s)
    if row.node.state != Node.State.WAKING:
        return boot_s
    waited_s = max((now - (row.done_at or row.since)).total_seconds(), 0.0)
    return max(boot_s - waited_s, LATE * boot_s)


def read_coming_back() -> set[int]:
    """Nodes that are drained for a maintenance, and in service once it is over."""
    return set(Node.objects.filter(maintenance_until__isnull=False).values_list("pk", flat=True))


def in_service_again(nodes: Sequence[NodeRow], coming_back: set[int], boots: Mapping[int, float]) -> list[NodeRow]:
    """The nodes, in service if they are now or will return. Pure."""
    return [node._replace(in_service=node.in_service or node.id in coming_back or node.id in boots) for node in nodes]


def up_from_s(nodes: Sequence[NodeRow], boots: Mapping[int, float]) -> Floats:
    """Seconds (N,) until each node is up; 0: it is. Pure."""
    return np.array([0.0 if node.in_service else boots.get(node.id, 0.0) for node in nodes], dtype=float)
