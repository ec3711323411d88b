"""Lending windows: the hours of the day in which the owner of a machine lends it.

The notice before a window ends, the node is drained, so that its jobs save their work and leave; when the next one
begins, it returns to service. A node that a person took out of service stays out.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db.models import Q

from cluster_app.models import Node

log = logging.getLogger(__name__)

DAY = timedelta(days=1)
State = Node.State


class Window(NamedTuple):
    """Hours from `begins` to `ends` in a time zone, each day; they may go over midnight."""

    begins: time
    ends: time
    zone: ZoneInfo

    @classmethod
    def of(cls, node: Node) -> Self | None:
        """The node's lending hours; None if it is always lent."""
        if node.lent_from is None or node.lent_until is None:
            return None
        return cls(node.lent_from, node.lent_until, ZoneInfo(node.lent_zone))

    def left(self, at: datetime) -> timedelta:
        """Time until the window ends; zero outside it. Of an hour that the clock repeats, the first counts."""
        today = at.astimezone(self.zone).date()
        day = today if self._moment(today, self.ends) > at else today + DAY
        begin = self._moment(day - DAY if self.begins >= self.ends else day, self.begins)
        return self._moment(day, self.ends) - at if begin <= at else timedelta()

    def _moment(self, day: date, hour: time) -> datetime:
        return datetime.combine(day, hour, self.zone).astimezone(UTC)  # where differences are of real time


def hours_of(node: Node) -> str:
    """The node's lending hours as text; empty if it is always lent."""
    if node.lent_from is None or node.lent_until is None:
        return ""
    return f"from {node.lent_from:%H:%M} to {node.lent_until:%H:%M} ({node.lent_zone})"


def takes_jobs(node: Node, now: datetime) -> bool:
    """Whether the node's lending hours last longer than the notice with which it is given back.

    With a time zone that this machine does not know it is not lent: nobody may use it at hours that are not given.
    """
    try:
        window = Window.of(node)
    except (ZoneInfoNotFoundError, ValueError):
        log.warning("%s is not lent: this machine does not know the time zone %s", node.name, node.lent_zone)
        return False
    return window is None or window.left(now) > timedelta(seconds=node.notice_s)


class WindowChanges(NamedTuple):
    """Nodes that are given back to their owners, those that sleep woken first, and nodes that are lent again."""

    given_back: list[Node]
    woken: list[Node]
    lent: list[Node]

    def __bool__(self) -> bool:
        return any(self)


def window_changes(now: datetime) -> WindowChanges:
    """The changes that are due."""
    columns = ("name", "state", "given_back", "notice_s", "lent_from", "lent_until", "lent_zone")
    nodes = Node.objects.filter(Q(lent_from__isnull=False) | Q(given_back=True))
    return changes_of(nodes.only(*columns), now)


def changes_of(nodes: Iterable[Node], now: datetime) -> WindowChanges:
    """The changes that are due to these nodes. Pure."""
    changes = WindowChanges([], [], [])
    for node in nodes:
        lent = takes_jobs(node, now)
        if node.state == State.READY and not lent:
            changes.given_back.append(node)
        elif node.state == State.SLEEPING and not lent:
            changes.woken.append(node)
        elif node.given_back and lent:
            changes.lent.append(node)
    return changes
