"""Maintenance windows: nodes are drained while one lasts, and return to service after it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from cluster_app.models import Node
from cluster_app.services import begin_maintenance, end_maintenance
from scheduler_app.windows.reading import WindowRow


class MaintenanceChanges(NamedTuple):
    """Nodes whose maintenance begins, or has another end than before, with its window; and those where it is over."""

    begun: list[tuple[Node, WindowRow]]
    over: list[Node]

    def __bool__(self) -> bool:
        return any(self)


def maintenance_changes(windows: Sequence[WindowRow], now: datetime) -> MaintenanceChanges:
    """The changes that are due; one query."""
    going_on = [row for row in windows if row.team_id is None and row.covers(now)]
    of_windows = {node for row in going_on for node in row.nodes}
    nodes = Node.objects.filter(Q(pk__in=of_windows) | Q(maintenance_until__isnull=False))
    return changes_of(nodes, going_on)


def changes_of(nodes: Iterable[Node], going_on: Iterable[WindowRow]) -> MaintenanceChanges:
    """The changes that are due to these nodes, of several windows the last that ends counts. Pure."""
    last = {node: row for row in sorted(going_on, key=lambda row: row.ends_at) for node in row.nodes}
    changes = MaintenanceChanges([], [])
    for node in nodes:
        window = last.get(node.pk)
        if window is None:
            changes.over.append(node)
        elif node.maintenance_until != window.ends_at and (node.maintenance_until or node.state == Node.State.READY):
            changes.begun.append((node, window))
    return changes


def follow_maintenance(changes: MaintenanceChanges, now: datetime) -> None:
    """Drain the nodes whose maintenance begins, and return those to service where it is over."""
    for node, window in changes.begun:
        begin_maintenance(node, reason=window.words, until=window.ends_at)
    for node in changes.over:
        end_maintenance(node, now)
