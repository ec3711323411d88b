"""Nodes of an engine, added or updated as the engine reports them."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpusInUse, GpuTypeRetired, NodeRetired
from cluster_app.models import MOST_GPUS_PER_NODE, Engine, Node, name_is_plain
from cluster_app.services import add_node, refuse_taking_out_used_gpus
from connections_app.register_machine import missing_in_words, registered_gpu_type


@transaction.atomic
def sync_nodes(engine: Engine, *, actor: AbstractBaseUser | None) -> list[str]:
    """Add or update every node that the engine reported last; returns a line on each that was changed or left out."""
    if engine.heard_at is None:
        return [f"The engine {engine.name} has not been heard yet: enable it, and see that the scheduler runs."]
    lines = [line for name, found in sorted(engine.inventory.items()) if (line := _sync(engine, name, found))]
    note(Action.NODE_SYNC, actor=actor, target=engine.name, target_id=engine.pk, message="; ".join(lines))
    return lines or [f"The nodes of {engine.name} are as it reports them ({len(engine.inventory)})."]


def _sync(engine: Engine, name: str, found: Mapping[str, Any]) -> str:
    known = Node.objects.with_gpu_counts().select_related("gpu_type").filter(name=name).first()
    fault = _unfit(name, found) or (_clash(engine, known, found) if known else "")
    if fault:
        return f"Node {name} was left out: {fault}"
    if known and (_columns_of(known) == _columns(found) or known.state == Node.State.RETIRED):
        return ""
    gpu_type = registered_gpu_type(found["gpu_type"], found["gpu_memory_mib"])
    columns = {column: found[column] for column in ("gpus", "cpus", "memory_mib", "uuids")}
    try:
        add_node(name, gpu_type, engine=engine.name, **columns)
    except (GpuTypeRetired, NodeRetired) as error:
        return f"Node {name} was left out: {error}"
    verb = "updated" if known else "added"
    return f"Node {name} was {verb}: {found['gpus']} x {gpu_type}{missing_in_words(gpu_type)}"


def _unfit(name: str, found: Mapping[str, Any]) -> str:
    """Why no node can be made from the report."""
    try:
        name_is_plain(name)
    except ValidationError as error:
        return f"its name does not do. {error.message}"
    if not found["gpus"]:
        return "it has no GPUs."
    if not found["gpu_type"]:
        reason = f" ({found['reason']})" if found["reason"] else ""
        return f"its GPUs have no type, or more than one{reason}: give them one in the site's configuration."
    if found["gpus"] > MOST_GPUS_PER_NODE:
        return f"a node may have at most {MOST_GPUS_PER_NODE} GPUs."
    return "" if found["cpus"] and found["memory_mib"] else "it reports no CPUs or no memory."


def _clash(engine: Engine, known: Node, found: Mapping[str, Any]) -> str:
    """Why the node that has this name cannot be the reported one."""
    if known.engine_id != engine.name:
        return f"a node of the engine {known.engine_id} has this name."
    if known.emulated:
        return "an emulated node has this name."
    if known.gpu_type.name != found["gpu_type"]:
        return f"it had {known.gpu_type} GPUs and has {found['gpu_type']} now: delete the old node first."
    try:
        refuse_taking_out_used_gpus(known, found["gpus"])
    except GpusInUse as error:
        return str(error)
    return ""


def _columns(found: Mapping[str, Any]) -> tuple[int, ...]:
    return found["gpus"], found["cpus"], found["memory_mib"]


def _columns_of(node: Node) -> tuple[int, ...]:
    return node.gpus, node.cpus, node.memory_mib  # type: ignore[attr-defined]  # an annotation of the query
