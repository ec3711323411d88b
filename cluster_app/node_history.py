"""History of nodes: the intervals in which they were up and down, and what these amount to."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, DateTimeField, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Greatest

from cluster_app.models import Node, NodeInterval, NodePower

End = NodeInterval.End
OBSERVED_FOR = timedelta(days=30)
"""Lifetimes are estimated from intervals that ended in this time or go on: so much is read, whatever is kept."""
BEING_EMPTIED = (Node.State.DRAINING, Node.State.DRAINED)


def note_health(node: Node, health: Node.Health, now: datetime) -> None:
    """Begin or end an interval with a change of health. A suspect node is still taken for up.

    A lost node was up until it was last heard of. What is heard of a node that was put to sleep is of its power.
    """
    if NodePower.objects.filter(node=node).exists():
        return
    if health == Node.Health.HEALTHY:
        _turn(node, up=True, at=now, end=End.CHANGED)
    elif health == Node.Health.LOST:
        announced = node.state in BEING_EMPTIED
        _turn(node, up=False, at=node.heard_at or now, end=End.ANNOUNCED if announced else End.CHANGED)


def begin_interval(node: Node, now: datetime) -> None:
    """The node is up from now on, after a time in which nothing was observed."""
    _turn(node, up=True, at=now, end=End.CENSORED)


def _turn(node: Node, *, up: bool, at: datetime, end: NodeInterval.End) -> None:
    before = NodeInterval.objects.filter(node=node, ended_at=None)
    _close(before.exclude(up=up), at, end)
    NodeInterval.objects.get_or_create(node=node, ended_at=None, defaults={"up": up, "started_at": at})


def censor_intervals(nodes: Collection[int], now: datetime) -> None:
    """End the intervals of nodes that are other machines from now on, or that are put to sleep."""
    _close(NodeInterval.objects.filter(node__in=nodes, ended_at=None), now, End.CENSORED)


def _close(intervals: QuerySet[NodeInterval], at: datetime, end: NodeInterval.End) -> None:
    intervals.update(ended_at=Greatest(F("started_at"), Value(at, DateTimeField())), end=end)


class Observed(NamedTuple):
    """Observed intervals: seconds up and down, ends of both, and how many ends of the first were announced."""

    up_s: float = 0.0
    losses: int = 0
    announced: int = 0
    down_s: float = 0.0
    returns: int = 0


def observed_by_node(nodes: Collection[int] | QuerySet[Node, Any], now: datetime) -> dict[int, Observed]:
    """What was observed of each of these nodes, by primary key."""
    return _observed(NodeInterval.objects.filter(node__in=nodes), "node", now)


def observed_by_capacity_type(now: datetime) -> dict[str, Observed]:
    """What was observed of all nodes of each capacity type."""
    return _observed(NodeInterval.objects.all(), "node__capacity_type", now)


def _observed(intervals: QuerySet[NodeInterval], by: str, now: datetime) -> dict[Any, Observed]:
    recent = intervals.filter(Q(ended_at=None) | Q(ended_at__gte=now - OBSERVED_FOR))
    until = Coalesce("ended_at", Value(now, DateTimeField()))
    length = ExpressionWrapper(until - F("started_at"), DurationField())
    rows = (
        recent.order_by()
        .values(by, "up")
        .annotate(
            total=Sum(length),
            ends=Count("pk", Q(end__in=(End.CHANGED, End.ANNOUNCED))),
            announced=Count("pk", Q(end=End.ANNOUNCED)),
        )
    )
    found: dict[Any, dict[bool, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        found[row[by]][row["up"]] = row
    return {key: _of_rows(sums.get(True, NONE), sums.get(False, NONE)) for key, sums in found.items()}


NONE: Mapping[str, Any] = {"total": timedelta(), "ends": 0, "announced": 0}


def _of_rows(up: Mapping[str, Any], down: Mapping[str, Any]) -> Observed:
    up_s, down_s = (
        max(row["total"].total_seconds(), 0.0) for row in (up, down)
    )  # below 0 by a clock that was set back
    return Observed(up_s, up["ends"], up["announced"], down_s, down["ends"])
