"""Outages of a node: times in which it was down, out of service or asleep, from its events backwards. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from cluster_app.models import Node, NodeEvent

Kind = NodeEvent.Kind
BEGINS: dict[str, str] = {
    Kind.CORDONED: "cordoned",
    Kind.DRAINED: "drained",
    Kind.SLEPT: "asleep",
    Kind.RETIRED: "retired",
}
"""What begins with an event of a node."""
ENDS: dict[str, str] = {Kind.AWAKE: "asleep", Kind.RESTORED: "retired"}
"""Outages that an event ends where their begin is not known. A resume ends none: the node may have been in service."""
EVENT_KINDS = (*BEGINS, Kind.RESUMED, *ENDS)
WHATS = tuple(dict.fromkeys(("down", *BEGINS.values(), *ENDS.values())))
OF_STATE: dict[str, str] = {
    Node.State.CORDONED: "cordoned",
    Node.State.DRAINING: "drained",
    Node.State.DRAINED: "drained",
    Node.State.SLEEPING: "asleep",
    Node.State.WAKING: "asleep",
    Node.State.RETIRED: "retired",
}


class StateEvent(NamedTuple):
    """Event with which a node's state changed, one of `EVENT_KINDS`."""

    at: datetime
    kind: str
    message: str


class Outage(NamedTuple):
    """Time in which a node ran no new jobs; `until` is None while it goes on."""

    node: str
    since: datetime
    until: datetime | None
    what: str
    reason: str = ""


class NodeNow(NamedTuple):
    name: str
    state: str
    reason: str


def outages_of_node(
    node: NodeNow, events: Sequence[StateEvent], since: datetime, before: StateEvent | None = None
) -> Iterator[Outage]:
    """Outages of one node since then, from its events in order, the last one before them, and its state now."""
    goes_on = _begun_with(before, node, since) if before else _open_before(node, events, since)
    for event in events:
        if goes_on:
            yield goes_on._replace(until=event.at)
        begun = BEGINS.get(event.kind)
        goes_on = Outage(node.name, event.at, None, begun, event.message) if begun else None
    if goes_on and node.state in OF_STATE:
        yield goes_on


def _begun_with(before: StateEvent, node: NodeNow, since: datetime) -> Outage | None:
    begun = BEGINS.get(before.kind)
    return Outage(node.name, since, None, begun, before.message) if begun else None


def _open_before(node: NodeNow, events: Sequence[StateEvent], since: datetime) -> Outage | None:
    """The outage that began before all known events: the first of them ends it, or without events it still goes on."""
    if not events:
        what, reason = OF_STATE.get(node.state), node.reason
    else:
        what, reason = ENDS.get(events[0].kind), ""
    return Outage(node.name, since, None, what, reason) if what else None
