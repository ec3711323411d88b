"""Records of engine reports: answers, nodes, heartbeats, health of nodes and GPUs; declared nodes that differ."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import DataError, IntegrityError, transaction
from django.db.models import Q

from cluster_app.errors import NotReported
from cluster_app.models import FOREIGN_USE, Engine, MissingStorage, Node, NodeEvent
from cluster_app.services import record

log = logging.getLogger(__name__)
Inventory = Mapping[str, Mapping[str, Any]]
"""Reported nodes: name → the columns of `scheduler_app.round.store_node_reports.inventory_of`."""


CORDONED = "cordoned"
"""The state in which the engine gives a node no new jobs, as of `engines.protocol.NodeState`."""
HEARTBEAT_RESOLUTION = timedelta(seconds=2)
"""A heartbeat that is younger than this is not written again: thousands of nodes are heard twice a second."""
LOCAL = Engine.Kind.LOCAL
REMEDY = "tick emulated, or choose the engine that has the node"
MOST_NAMED = 6
MOST_OF_LIMITS = 500
MOST_OF_RUNTIME = 100
"""Characters of `Node.limits` and `Node.containers`."""


def record_answer(engine: Engine, inventory: Inventory, *, now: datetime) -> None:
    """Record that the engine answers, and the nodes that it reports; only what has changed is written."""
    changes: dict[str, Any] = {"heard_at": now}
    if not engine.answers:
        changes |= {"since": now, "fault": "", "retry_at": None}
    if inventory != engine.inventory:
        changes["inventory"] = inventory
    Engine.objects.filter(pk=engine.pk).update(**changes)


def record_answers(answers: Sequence[tuple[Engine, Inventory]], *, now: datetime) -> None:
    """Record that engines answer, and their nodes: in one query those of which nothing else is new."""
    changed = [(engine, nodes) for engine, nodes in answers if not engine.answers or nodes != engine.inventory]
    for engine, nodes in changed:
        record_answer(engine, nodes, now=now)
    alike = {engine.pk for engine, _ in answers} - {engine.pk for engine, _ in changed}
    Engine.objects.filter(pk__in=alike).update(heard_at=now)


def record_fault(engine: Engine, fault: str, *, now: datetime, retry_at: datetime) -> None:
    """Record that the engine does not answer, why, since when, and when it is asked again."""
    begun = {} if engine.fault else {"since": now}
    fault = fault[:500] or "It does not answer."
    Engine.objects.filter(pk=engine.pk).update(fault=fault, retry_at=retry_at, **begun)


def record_heartbeats(engines: Collection[str], names: Iterable[str], *, now: datetime) -> None:
    """Record that these nodes are alive, not oftener than needed; engines speak for their own nodes only."""
    alive = set(names)
    stale = Q(heard_at=None) | Q(heard_at__lte=now - HEARTBEAT_RESOLUTION) | Q(heard_at__gt=now)
    rows = Node.objects.current().filter(stale, engine__name__in=engines).values_list("pk", "name")
    Node.objects.filter(pk__in=[pk for pk, name in rows if name in alive]).update(heard_at=now)


def reasons_out_of_service(engine: str) -> dict[str, str]:
    """The engine's nodes, each with the reason of its cordon or drain; empty for a node in service."""
    return dict(Node.objects.filter(engine__name=engine).values_list("name", "reason"))


CONDITION = ("engine_reason", "limits", "containers", *FOREIGN_USE)
"""Columns of a node that say whether the engine gives it no new jobs, how jobs run there, and what others use of it."""


def store_conditions(reported: Mapping[str, Inventory]) -> None:
    """Store what engines report of their nodes where it differs: thousands are compared as they are read."""
    stored = Node.objects.filter(engine__name__in=reported).values_list("engine__name", "name", *CONDITION)
    changed: dict[str, dict[str, list[Any]]] = defaultdict(dict)
    for engine, name, *before in stored:
        if before != (condition := _condition(reported[engine].get(name, {}))):
            changed[engine][name] = condition
    for engine, conditions in changed.items():
        _store_conditions_of(engine, conditions)


def _store_conditions_of(engine: str, changed: Mapping[str, Sequence[Any]]) -> None:
    try:
        with transaction.atomic():
            _store_changed(engine, changed)
    except (DataError, IntegrityError):  # of this engine alone: the conditions of others' nodes are stored all the same
        log.exception("the conditions of the nodes of the engine %s could not be stored", engine)


def _store_changed(engine: str, changed: Mapping[str, Sequence[Any]]) -> None:
    for node in Node.objects.filter(engine__name=engine, name__in=changed):
        reason, *_ = changed[node.name]
        Node.objects.filter(pk=node.pk).update(**dict(zip(CONDITION, changed[node.name], strict=True)))
        if reason != node.engine_reason:
            said = f"taken out of service by the engine: {reason}" if reason else "back in service at the engine"
            record(node, NodeEvent.Kind.HEALTH, said)


def _condition(reported: Mapping[str, Any]) -> list[Any]:
    """The columns of `CONDITION` as the engine reports them."""
    reason = (reported["reason"] or "out of service")[:200] if reported.get("state") == CORDONED else ""
    limits = reported.get("limits", "")[:MOST_OF_LIMITS]
    runtime = reported.get("containers", "")[:MOST_OF_RUNTIME]
    return [reason, limits, runtime, *(reported.get(name, 0) for name in FOREIGN_USE)]


def engine_message(node: Node, engine: Engine) -> str:
    """Message of the engine on a node: why it gets no new jobs, and what the site refuses; empty if there is none."""
    refusal = engine.inventory.get(node.name, {}).get("refusal", "")
    return " ".join(part for part in (why_not_in_service(node, engine), refusal) if part)


def why_not_in_service(node: Node, engine: Engine) -> str:
    """Why the engine gives a node no new jobs; empty if it does."""
    if engine.fault:
        return f"The engine {engine.name} does not answer: {engine.fault}"
    if not engine.enabled:
        return f"The engine {engine.name} is disabled."
    if node.health == Node.Health.UNKNOWN:
        return _why_unknown(node, engine)
    reason = engine.inventory.get(node.name, {}).get("reason", "")
    if node.health != Node.Health.HEALTHY and reason:
        return f"The engine {engine.name} does not hear from it: {reason}"
    return f"The engine {engine.name} gives it no new jobs: {node.engine_reason}" if node.engine_reason else ""


def _why_unknown(node: Node, engine: Engine) -> str:
    if engine.heard_at is None:
        return f"The engine {engine.name} has not been heard yet."
    if reason := engine.inventory.get(node.name, {}).get("reason", ""):
        return f"The engine {engine.name} has not heard from it: {reason}"
    if node.name in engine.inventory or node.emulated:
        return f"The engine {engine.name} has not heard from it yet."
    return f"The engine {engine.name} does not report this node; it reports: {nodes_in_words(engine)}."


def nodes_in_words(engine: Engine) -> str:
    """The nodes that an engine reports, with their GPUs: the first few by name."""
    found = [f"{name} ({one['gpus']} {one['gpu_type']})" for name, one in sorted(engine.inventory.items())]
    rest = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return ", ".join([*found[:MOST_NAMED], *rest]) or "no node with GPUs"


def refuse_unreported(engine: Engine, name: str, gpu_type: str, gpus: int, *, emulated: bool) -> None:
    """Raise `NotReported` for a node that differs from its engine's report; not before the engine's first report."""
    if emulated:
        if engine.kind != LOCAL:
            raise NotReported(
                "emulated", "Only the engine of this machine has emulated nodes: choose it, or untick this."
            )
        return
    if engine.heard_at is None:
        return
    if name not in engine.inventory:
        raise NotReported("engine", _not_there(engine, name, gpu_type))
    found = engine.inventory[name]
    if found["gpu_type"] != gpu_type or found["gpus"] < gpus:
        raise NotReported("gpus", _other(engine, name, f"{found['gpus']} {found['gpu_type']}", f"{gpus} {gpu_type}"))


def _not_there(engine: Engine, name: str, gpu_type: str) -> str:
    if engine.kind != LOCAL:
        return f"The engine {engine.name} does not report {name}; it reports: {nodes_in_words(engine)}."
    if not engine.inventory:
        return f"This machine has 0 {gpu_type} GPUs: {REMEDY}."
    return f"This machine is {nodes_in_words(engine)}, not {name}: {REMEDY}."


def _other(engine: Engine, name: str, found: str, asked: str) -> str:
    if engine.kind == LOCAL:
        return f"This machine has {found} GPUs, not {asked}: {REMEDY}."
    return f"The engine {engine.name} reports {found} GPUs on {name}, not {asked}."


def note_missing_storage(name: str, node_name: str, now: datetime) -> None:
    """Note that an attempt did not find the storage on a node, in the node's history too."""
    node = Node.objects.filter(name=node_name).first()
    if node is None:
        return
    _, is_new = MissingStorage.objects.update_or_create(node=node, name=name, defaults={"at": now})
    if is_new:
        record(node, NodeEvent.Kind.STORAGE, f"The storage {name} is missing.")
