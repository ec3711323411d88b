"""History of nodes: intervals in which they were up and down, and sums of these."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, DateTimeField, F, Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Greatest

from cluster_app.models import Node, NodeInterval, NodePower
from database.time_bucket import Bucket

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


def censor_intervals(nodes: Collection[int], now: datetime, *, end: NodeInterval.End = End.CENSORED) -> None:
    """End the intervals of nodes that are other machines from now on, or that are put to sleep or retired.

    Lifetimes count none of these as a loss.
    """
    _close(NodeInterval.objects.filter(node__in=nodes, ended_at=None), now, end)


def _close(intervals: QuerySet[NodeInterval], at: datetime, end: NodeInterval.End) -> None:
    intervals.update(ended_at=Greatest(F("started_at"), Value(at, DateTimeField())), end=end)


class Observed(NamedTuple):
    """Observed intervals: seconds up and down, ends of both, and how many ends of the first were announced."""

    up_s: float = 0.0
    losses: int = 0
    announced: int = 0
    down_s: float = 0.0
    returns: int = 0


def observed_by_node(now: datetime) -> Mapping[int, Observed]:
    """Observed intervals of each node, by primary key; sums of many intervals are cached for `KEPT_FOR`."""
    newest = NodeInterval.objects.aggregate(newest=Max("pk"))["newest"] or 0
    kept = _KEPT.get("sums")
    if kept is None or not kept.holds(newest, now):
        kept = _KEPT["sums"] = _read_sums(newest, now)
    return kept.by_node


class InBand(NamedTuple):
    """Losses of nodes of ages in one band, and the seconds in which nodes of such an age could have been lost."""

    losses: int
    up_s: float


def losses_by_age(bands_s: Sequence[float], now: datetime) -> dict[str, list[InBand]]:
    """Losses in each band of age, which begin at these seconds, by capacity type, in one query."""
    recent = NodeInterval.objects.filter(Q(ended_at=None) | Q(ended_at__gte=now - OBSERVED_FOR), up=True)
    length = Greatest(
        Bucket(Coalesce("ended_at", Value(now, DateTimeField())), seconds=1) - Bucket(F("started_at"), seconds=1), 0
    )
    lost = Q(end__in=(End.CHANGED, End.ANNOUNCED))
    columns: dict[str, Any] = {}
    for band, begin_s in enumerate(bands_s):
        reached = Q(length__gte=begin_s)
        columns |= {
            f"lost_{band}": Count("pk", reached & lost),
            f"passed_{band}": Sum(F("length") - int(begin_s), filter=reached, default=0),
        }
    rows = recent.order_by().annotate(length=length).values(kind=F("node__capacity_type")).annotate(**columns)
    return {row["kind"]: list(_in_bands(row, len(bands_s))) for row in rows}


def _in_bands(row: Mapping[str, Any], bands: int) -> Iterable[InBand]:
    """Differences between what reached a band and what reached the next."""
    for band in range(bands):
        later = (row[f"lost_{band + 1}"], row[f"passed_{band + 1}"]) if band + 1 < bands else (0, 0)
        yield InBand(row[f"lost_{band}"] - later[0], float(row[f"passed_{band}"] - later[1]))


def by_capacity_type(by_node: Mapping[int, Observed]) -> dict[str, Observed]:
    """Observed intervals of all nodes of each capacity type."""
    found: dict[str, list[Observed]] = defaultdict(list)
    for pk, kind in Node.objects.order_by().values_list("pk", "capacity_type"):
        if pk in by_node:
            found[kind].append(by_node[pk])
    return {kind: Observed(*map(sum, zip(*some, strict=True))) for kind, some in found.items()}


KEPT_FOR = timedelta(hours=1)
LEAST_KEPT, MOST_NEW = 10_000, 0.01
"""Sums of at least so many intervals are kept, until a hundredth of them is new: the rates are hardly others then."""


@dataclass(frozen=True)
class _Sums:
    """Sums of the intervals up to the newest of this primary key."""

    by_node: Mapping[int, Observed]
    intervals: int
    newest: int
    at: datetime

    def holds(self, newest: int, now: datetime) -> bool:
        few_new = 0 <= newest - self.newest <= MOST_NEW * self.intervals
        return self.intervals >= LEAST_KEPT and few_new and self.at <= now < self.at + KEPT_FOR


_KEPT: dict[str, _Sums] = {}
"""Of this process."""


def _read_sums(newest: int, now: datetime) -> _Sums:
    recent = NodeInterval.objects.filter(Q(ended_at=None) | Q(ended_at__gte=now - OBSERVED_FOR))
    until = Coalesce("ended_at", Value(now, DateTimeField()))
    rows = (
        recent.order_by()
        .values("node", "up")
        .annotate(
            # Of whole seconds: on SQLite the difference of timestamps is a function in Python.
            total=Sum(Bucket(until, seconds=1) - Bucket(F("started_at"), seconds=1)),
            intervals=Count("pk"),
            ends=Count("pk", Q(end__in=(End.CHANGED, End.ANNOUNCED))),
            announced=Count("pk", Q(end=End.ANNOUNCED)),
        )
    )
    found: dict[int, dict[bool, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        found[row["node"]][row["up"]] = row
    sums = {node: _of_rows(of_node.get(True, NONE), of_node.get(False, NONE)) for node, of_node in found.items()}
    return _Sums(sums, sum(row["intervals"] for of_node in found.values() for row in of_node.values()), newest, now)


NONE: Mapping[str, Any] = {"total": 0, "ends": 0, "announced": 0}


def _of_rows(up: Mapping[str, Any], down: Mapping[str, Any]) -> Observed:
    up_s, down_s = (max(float(row["total"]), 0.0) for row in (up, down))  # below 0 by a clock that was set back
    return Observed(up_s, up["ends"], up["announced"], down_s, down["ends"])
