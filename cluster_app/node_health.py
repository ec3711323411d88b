"""Health of nodes by the time since their last heartbeat: healthy, suspect, lost; unknown before the first one."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from django.db.models import Q

from cluster_app.engine_reports import Inventory
from cluster_app.models import LOST_AFTER, SUSPECT_AFTER, UNHEARD, Engine, Gpu, Node, NodeEvent
from cluster_app.node_history import note_health
from cluster_app.services import record

OFF = frozenset({"sleeping", "waking"})
"""The states in which the site has the node switched off, or is about to: it is silent, and not lost."""


def health_at(node: Node, now: datetime, *, listening_since: datetime, answering_since: datetime | None) -> Node.Health:
    """Health from the time since the last heartbeat, not counting the time in which no scheduler listened.

    Unknown until its engine hears from it; a node that is lost or suspect improves by heartbeats only, not because
    a scheduler or its engine begins anew.
    `answering_since`: since when the engine has answered; None: it does not, which proves no node dead.
    """
    if node.heard_at is None:
        return Node.Health.UNKNOWN
    if now - node.heard_at <= SUSPECT_AFTER:
        return Node.Health.HEALTHY
    if node.health == Node.Health.LOST:
        return Node.Health.LOST
    silence = now - max(node.heard_at, listening_since)
    if silence <= SUSPECT_AFTER and node.health != Node.Health.SUSPECT:
        return Node.Health.HEALTHY
    proven = answering_since is not None and min(silence, now - answering_since) > LOST_AFTER
    return Node.Health.LOST if proven else Node.Health.SUSPECT


def update_node_health(
    now: datetime, *, listening_since: datetime, conditions: Mapping[str, Inventory] = MappingProxyType({})
) -> list[str]:
    """Derive each node's health from its last heartbeat; a change is recorded as an event, and in its intervals.

    Returns the names of the nodes that are lost since now.

    The silence of a node that sleeps or is being woken, here or at its site, says nothing, unless a job is there.

    `conditions`: what the engines that answered have reported of their nodes now, by the engine's name.
    """
    lost: list[str] = []
    engines = {engine.name: engine for engine in Engine.objects.defer("inventory", "options")}
    stays_healthy = Q(health=Node.Health.HEALTHY, heard_at__gte=now - SUSPECT_AFTER)
    for node in (
        Node.objects.exclude(stays_healthy)
        .exclude(state__in=UNHEARD)
        .exclude(name__in=_off_without_jobs(conditions))
        .only("name", "engine_id", "state", "health", "heard_at")
    ):
        engine = engines[str(node.engine_id)]
        since = None if engine.fault else engine.since or listening_since
        health = health_at(node, now, listening_since=listening_since, answering_since=since)
        if health != node.health:
            Node.objects.filter(pk=node.pk).update(health=health)
            record(node, NodeEvent.Kind.HEALTH, f"{health.label}")
            note_health(node, health, now)
            lost += [node.name] if health == Node.Health.LOST else []
    return lost


def _off_without_jobs(conditions: Mapping[str, Inventory]) -> set[str]:
    """Nodes that are reported as switched off, and of which no GPU is claimed."""
    off = {name for nodes in conditions.values() for name, one in nodes.items() if one.get("state") in OFF}
    if not off:
        return off
    claimed = Gpu.objects.filter(node__name__in=off, claims__isnull=False, claims__released_at=None)
    return off - set(claimed.values_list("node__name", flat=True))
