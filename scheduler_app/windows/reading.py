"""Future windows with their nodes, in a fixed number of queries; one query if there is no window."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import NamedTuple

from django.db.models import Count, Q

from cluster_app.models import POWERED_DOWN, Node
from scheduler_app.models import TimeWindow
from scheduler_app.windows.recurrence import Occurrence, Recurrence

MOST_OCCURRENCES = 1_000
"""Of one window, within a horizon."""
LONGEST_SAVING = timedelta(hours=2)
"""Time before a window at which jobs are stopped, however long a job takes to save its work."""
MARGIN = timedelta(seconds=15)
"""Turns of the scheduler and the end of processes take a while."""


class WindowRow(NamedTuple):
    """One occurrence of a window, and its nodes."""

    window: int
    team_id: int | None
    """The team that may use the nodes; None: they are in maintenance."""
    begins_at: datetime
    ends_at: datetime
    again_at: datetime | None
    """When the window begins again; None: it does not."""
    nodes: frozenset[int]
    reason: str
    team: str = ""
    gap_s: float = inf
    """The longest time in seconds without a window on one of its nodes, as far as that is known."""

    def covers(self, now: datetime) -> bool:
        return self.begins_at <= now < self.ends_at

    @property
    def words(self) -> str:
        """Kind, end and reason of the window, as text."""
        what = f"reserved for team {self.team}" if self.team_id else "maintenance"
        return f"{what} from {self.begins_at:%F %H:%M} to {self.ends_at:%F %H:%M} UTC: {self.reason}"

    @property
    def state_words(self) -> str:
        """State of its nodes during the window, its end and its reason, as text."""
        what = f"reserved for team {self.team}" if self.team_id else "in maintenance"
        return f"{what} until {self.ends_at:%F %H:%M} UTC: {self.reason}"


def time_to_save(grace_s: int, checkpoint_s: float | None) -> timedelta:
    """Time from the stop of a job to the begin of a window: its grace, its last checkpoint, and a margin."""
    return min(timedelta(seconds=grace_s + (checkpoint_s or 0)), LONGEST_SAVING) + MARGIN


class NodeShape(NamedTuple):
    """Columns of a node by which windows select it."""

    id: int
    name: str
    gpu_type_id: int
    labels: Mapping[str, str]
    gpus: int
    """Present, healthy or not: a GPU that fails for a while must not change the order of nodes."""
    healthy_gpus: int
    may_serve: bool
    """In service now, or asleep or in maintenance and so in service later."""


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
    reserved = any(window.team_id for window in windows)
    return with_nodes(windows, named, _node_shapes() if reserved else _labelled_nodes(), now, horizon)


def _labelled_nodes() -> list[NodeShape]:
    """Nodes with their labels, which maintenance selects; GPUs are counted only for reservations."""
    rows = Node.objects.exclude(labels={}).order_by("name").values_list("pk", "name", "gpu_type_id", "labels")
    return [NodeShape(*row, gpus=0, healthy_gpus=0, may_serve=False) for row in rows]


def _node_shapes() -> list[NodeShape]:
    later = Q(state__in=POWERED_DOWN) | Q(maintenance_until__isnull=False)
    serving = set(Node.objects.schedulable().values_list("pk", flat=True))
    serving |= set(Node.objects.filter(later).values_list("pk", flat=True))
    present = Count("gpu", filter=Q(gpu__present=True))
    healthy = Count("gpu", filter=Q(gpu__present=True, gpu__healthy=True))
    rows = Node.objects.order_by("name").annotate(present=present, healthy=healthy)
    shapes = rows.values_list("pk", "name", "gpu_type_id", "labels", "present", "healthy")
    return [NodeShape(*row, row[0] in serving) for row in shapes]


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
    for window, when, again_at in dated:
        beside = [row for row in rows if row.begins_at < when.ends_at and when.begins_at < row.ends_at]
        taken = frozenset[int]().union(*(row.nodes for row in beside))
        its = _reserved(window, nodes, taken) if window.team_id else _maintained(window, named, nodes)
        team = window.team.name if window.team else ""
        rows.append(WindowRow(window.pk, window.team_id, *when, again_at, its, window.reason, team))
    rows.sort(key=lambda row: row.begins_at)
    gap_s = {nodes: _longest_gap_s([row for row in rows if row.nodes & nodes]) for nodes in {row.nodes for row in rows}}
    return [row._replace(gap_s=gap_s[row.nodes]) for row in rows]


def _longest_gap_s(rows: Sequence[WindowRow]) -> float:
    """The longest time between the end of one of these, sorted by begin, and the begin of the next that is known."""
    last = {row.window: row.again_at for row in rows}
    known_until = min((at for at in last.values() if at is not None), default=None)
    ends, gap_s = rows[0].ends_at if rows else None, 0.0
    for row in rows[1:]:
        begins = row.begins_at if known_until is None else min(row.begins_at, known_until)
        gap_s = max(gap_s, (begins - ends).total_seconds()) if ends else gap_s
        ends = max(ends, row.ends_at) if ends else row.ends_at
    if known_until is None or ends is None:
        return inf
    return max(gap_s, (known_until - ends).total_seconds())


def _dated(window: TimeWindow, now: datetime, horizon: timedelta) -> list[tuple[Occurrence, datetime | None]]:
    """The next occurrence, and those that begin within the horizon; with each when the window begins again."""
    found: list[Occurrence] = []
    for one in islice(recurrence_of(window).occurrences(now), MOST_OCCURRENCES):
        found.append(one)
        if len(found) > 1 and one.begins_at >= now + horizon:
            break
    again = [*(one.begins_at for one in found[1:]), None]
    dated = zip(found, again, strict=True)
    return [(one, at) for one, at in dated if one is found[0] or one.begins_at < now + horizon]


def _maintained(window: TimeWindow, named: Mapping[int, set[int]], nodes: Sequence[NodeShape]) -> frozenset[int]:
    labels = window.labels.items()
    labelled = {node.id for node in nodes if labels and labels <= node.labels.items()}
    return frozenset(labelled | named.get(window.pk, set()))


def _reserved(window: TimeWindow, nodes: Sequence[NodeShape], taken: frozenset[int]) -> frozenset[int]:
    """The fewest free nodes with so many GPUs, none of them down; fewer GPUs if there are not enough."""
    free = [
        node for node in nodes if node.gpu_type_id == window.gpu_type_id and node.may_serve and node.id not in taken
    ]
    chosen, left = set(), window.gpus or 0
    for node in sorted(free, key=lambda node: (-node.gpus, node.name)):
        if left <= 0:
            break
        chosen.add(node.id)
        left -= node.healthy_gpus
    return frozenset(chosen)
