"""Lending windows: the hours of the day in which the owner of a machine lends it.

The notice before a window ends, the node is drained, so that its jobs save their work and leave; when the next one
begins, it returns to service. A node that a person took out of service stays out.
"""

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo

from django.db.models import Q

from cluster_app.models import Node

DAY = timedelta(days=1)
State = Node.State


class Window(NamedTuple):
    """Hours from `begins` to `ends` in a time zone, each day; they may go over midnight."""

    begins: time
    ends: time
    zone: ZoneInfo

    @classmethod
    def of(cls, node: Node) -> Self | None:
        """The node's window; None: it is there at all hours."""
        if node.lent_from is None or node.lent_until is None:
            return None
        return cls(node.lent_from, node.lent_until, ZoneInfo(node.lent_zone))

    def left(self, at: datetime) -> timedelta:
        """Time until the window ends; zero outside it."""
        until_end = _between(at.astimezone(self.zone).time(), self.ends)
        return until_end if until_end <= _between(self.begins, self.ends) else timedelta()

    def __str__(self) -> str:
        return f"from {self.begins:%H:%M} to {self.ends:%H:%M} ({self.zone})"


def _between(one: time, other: time) -> timedelta:
    """Time from one time of day to the next other."""
    return (_since_midnight(other) - _since_midnight(one)) % DAY


def _since_midnight(at: time) -> timedelta:
    return timedelta(hours=at.hour, minutes=at.minute, seconds=at.second, microseconds=at.microsecond)


def takes_jobs(node: Node, now: datetime) -> bool:
    """Whether the node's window is open, and for longer than the notice with which it is given back."""
    window = Window.of(node)
    return window is None or window.left(now) > timedelta(seconds=node.notice_s)


class WindowChanges(NamedTuple):
    """Nodes that are given back to their owners, and nodes that are lent again."""

    given_back: list[Node]
    lent: list[Node]

    def __bool__(self) -> bool:
        return bool(self.given_back or self.lent)


def window_changes(now: datetime) -> WindowChanges:
    """The changes that are due."""
    columns = ("name", "state", "given_back", "notice_s", "lent_from", "lent_until", "lent_zone")
    nodes = Node.objects.filter(Q(lent_from__isnull=False) | Q(given_back=True))
    return changes_of(nodes.only(*columns), now)


def changes_of(nodes: Iterable[Node], now: datetime) -> WindowChanges:
    """The changes that are due to these nodes. Pure."""
    changes = WindowChanges([], [])
    for node in nodes:
        if node.state == State.READY and not takes_jobs(node, now):
            changes.given_back.append(node)
        elif node.given_back and takes_jobs(node, now):
            changes.lent.append(node)
    return changes
