"""Windows that are to come, with the nodes of each: a fixed number of queries, one where there is no window."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import NamedTuple

from django.db.models import Count, Q

from cluster_app.models import Node
from scheduler_app.models import TimeWindow
from scheduler_app.windows.recurrence import Occurrence, Recurrence

MOST_OCCURRENCES = 1_000
"""Of one window, within a horizon."""


class WindowRow(NamedTuple):
    """One occurrence of a window, and its nodes."""

    window: int
    team_id: int | None
    """The team that may use the nodes; None: they are in maintenance."""
    begins_at: datetime
    ends_at: datetime
    gap_s: float
    """Seconds until the window begins again; infinite: it does not."""
    nodes: frozenset[int]
    reason: str
    team: str = ""

    def covers(self, now: datetime) -> bool:
        return self.begins_at <= now < self.ends_at

    @property
    def comes_again(self) -> bool:
        return self.gap_s < inf

    @property
    def words(self) -> str:
        """What it is, until when, and why."""
        what = f"reserved for team {self.team}" if self.team_id else "maintenance"
        return f"{what} from {self.begins_at:%F %H:%M} to {self.ends_at:%F %H:%M} UTC: {self.reason}"


class NodeShape(NamedTuple):
    """What of a node windows are about."""

    id: int
    name: str
    gpu_type_id: int
    labels: Mapping[str, str]
    gpus: int
    in_service: bool


def read_windows(now: datetime, horizon: timedelta = timedelta()) -> list[WindowRow]:
    """The next occurrence of each window, and those that begin within the horizon, sorted by their begin."""
    windows = list(TimeWindow.objects.to_come(now).select_related("team"))
    if not windows:
        return []
    named: dict[int, set[int]] = defaultdict(set)
    for window, node in TimeWindow.nodes.through._default_manager.filter(timewindow__in=windows).values_list(
        "timewindow", "node"
    ):
        named[window].add(node)
    return with_nodes(windows, named, _node_shapes(), now, horizon)


def _node_shapes() -> list[NodeShape]:
    ready = set(Node.objects.schedulable().values_list("pk", flat=True))
    gpus = Count("gpu", filter=Q(gpu__present=True, gpu__healthy=True))
    rows = Node.objects.order_by("name").annotate(count=gpus)
    return [
        NodeShape(*row, row[0] in ready) for row in rows.values_list("pk", "name", "gpu_type_id", "labels", "count")
    ]


def recurrence_of(window: TimeWindow) -> Recurrence:
    return Recurrence(Occurrence(window.begins_at, window.ends_at), window.cron, window.zone, window.repeats_until)


def with_nodes(
    windows: Iterable[TimeWindow],
    named: Mapping[int, set[int]],
    nodes: Sequence[NodeShape],
    now: datetime,
    horizon: timedelta,
) -> list[WindowRow]:
    """The occurrences with their nodes. No two that overlap reserve the same node, nor one in maintenance. Pure."""
    dated = [(window, *one) for window in windows for one in _dated(window, now, horizon)]
    dated.sort(key=lambda one: (one[0].team_id is not None, one[1].begins_at, one[0].pk))
    rows: list[WindowRow] = []
    for window, when, gap_s in dated:
        beside = [row for row in rows if row.begins_at < when.ends_at and when.begins_at < row.ends_at]
        taken = frozenset[int]().union(*(row.nodes for row in beside))
        its = _reserved(window, nodes, taken) if window.team_id else _maintained(window, named, nodes)
        team = window.team.name if window.team else ""
        rows.append(WindowRow(window.pk, window.team_id, *when, gap_s, its, window.reason, team))
    return sorted(rows, key=lambda row: row.begins_at)


def _dated(window: TimeWindow, now: datetime, horizon: timedelta) -> list[tuple[Occurrence, float]]:
    """The next occurrence, and those that begin within the horizon; the seconds until it comes again."""
    found: list[Occurrence] = []
    for one in islice(recurrence_of(window).occurrences(now), MOST_OCCURRENCES):
        found.append(one)
        if len(found) > 1 and one.begins_at >= now + horizon:
            break
    gap_s = (found[1].begins_at - found[0].ends_at).total_seconds() if len(found) > 1 else inf
    return [(one, gap_s) for one in found if one is found[0] or one.begins_at < now + horizon]


def _maintained(window: TimeWindow, named: Mapping[int, set[int]], nodes: Sequence[NodeShape]) -> frozenset[int]:
    labels = window.labels.items()
    labelled = {node.id for node in nodes if labels and labels <= node.labels.items()}
    return frozenset(labelled | named.get(window.pk, set()))


def _reserved(window: TimeWindow, nodes: Sequence[NodeShape], taken: frozenset[int]) -> frozenset[int]:
    """The fewest nodes in service that have so many GPUs, none that is taken; fewer GPUs where there are not enough."""
    free = [
        node for node in nodes if node.gpu_type_id == window.gpu_type_id and node.in_service and node.id not in taken
    ]
    chosen, left = set(), window.gpus or 0
    for node in sorted(free, key=lambda node: (-node.gpus, node.name)):
        if left <= 0:
            break
        chosen.add(node.id)
        left -= node.gpus
    return frozenset(chosen)
