"""Write many declared nodes at once: all of them or none, in a few statements."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from cluster_app.errors import GpusInUse
from cluster_app.models import FOREIGN_USE, Gpu, GpuType, Node, NodeEvent
from cluster_app.node_history import censor_intervals
from database.bulk_insert import insert_many
from database.bulk_update import rewrite

DECLARED = (
    "cpus",
    "memory_mib",
    "engine",
    "emulated",
    "labels",
    "storage_mib_s",
    "capacity_type",
    "notice_s",
    "price_per_gpu_hour",
    "lent_from",
    "lent_until",
    "lent_zone",
)
"""Columns of a node that may change once it is there."""


@dataclass(frozen=True)
class DeclaredNode:
    """A node as it should be; `before`: as it is, if it is there, with so many GPUs."""

    node: Node
    gpus: int
    before: Node | None = None
    gpus_before: int = 0


def claimed_gpus() -> dict[int, list[int]]:
    """Indices of the GPUs that jobs hold or wait for, by node."""
    held = Gpu.objects.present().filter(claims__isnull=False, claims__released_at=None).distinct().order_by()
    found: dict[int, list[int]] = defaultdict(list)
    for node, index in held.values_list("node_id", "index"):
        found[node].append(index)
    return found


def refuse_removal_of(claimed: Mapping[int, Collection[int]], node: Node, count: int) -> None:
    """Raise `GpusInUse` if a GPU beyond this count is among the claimed ones."""
    if used := sum(index >= count for index in claimed.get(node.pk, ())):
        raise GpusInUse(node.name, used)


@transaction.atomic
def write_nodes(declared: Sequence[DeclaredNode], *, actor: AbstractBaseUser | None) -> None:
    """Add the nodes that are new and change the others, with their GPUs and their history."""
    added = [row for row in declared if row.before is None]
    changed = [row for row in declared if row.before is not None]
    _refuse_removals(changed)
    _add_gpu_types([row.node for row in added])
    Node.objects.bulk_create([row.node for row in added])
    names = [Node._meta.get_field(name).attname for name in DECLARED]  # type: ignore[union-attr]
    rewrite(Node, DECLARED, {row.node.pk: [getattr(row.node, name) for name in names] for row in changed})
    _forget_moved([row for row in changed if _moved(row)])
    _write_gpus(added, [row for row in changed if row.gpus != row.gpus_before])
    insert_many(NodeEvent, [_event(row, actor) for row in declared])


def _refuse_removals(changed: Sequence[DeclaredNode]) -> None:
    claimed = claimed_gpus() if changed else {}
    for row in changed:
        refuse_removal_of(claimed, row.node, row.gpus)


def _add_gpu_types(nodes: Sequence[Node]) -> None:
    """Save the types that are not there yet; nodes of the same type share one instance."""
    unsaved = {node.gpu_type.name: node.gpu_type for node in nodes if node.gpu_type._state.adding}
    GpuType.objects.bulk_create(list(unsaved.values()))
    for node in nodes:
        node.gpu_type = node.gpu_type  # takes its key over


def _moved(row: DeclaredNode) -> bool:
    before = row.before
    return before is not None and (row.node.engine_id, row.node.emulated) != (before.engine_id, before.emulated)


def _forget_moved(moved: Sequence[DeclaredNode]) -> None:
    """Forget the reports of nodes that are other machines now (see `unknown_if_moved`)."""
    unused = dict.fromkeys(FOREIGN_USE, 0)
    nodes = Node.objects.filter(pk__in=[row.node.pk for row in moved])
    nodes.update(health=Node.Health.UNKNOWN, heard_at=None, engine_reason="", **unused)
    censor_intervals([row.node.pk for row in moved], timezone.now())


def _write_gpus(added: Sequence[DeclaredNode], changed: Sequence[DeclaredNode]) -> None:
    """Insert the GPUs of new nodes; insert, restore or mark as removed those of the others."""
    insert_many(Gpu, [{"node_id": row.node.pk, "index": index} for row in added for index in range(row.gpus)])
    Gpu.objects.bulk_create(
        [Gpu(node_id=row.node.pk, index=index) for row in changed for index in range(row.gpus)],
        update_conflicts=True,
        unique_fields=["node", "index"],
        update_fields=["present"],
    )
    by_count: dict[int, list[int]] = defaultdict(list)
    for row in changed:
        by_count[row.gpus].append(row.node.pk)
    for count, nodes in by_count.items():
        Gpu.objects.filter(node_id__in=nodes, index__gte=count).update(present=False)


def _event(row: DeclaredNode, actor: AbstractBaseUser | None) -> dict[str, Any]:
    node, kind = row.node, NodeEvent.Kind.CHANGED if row.before else NodeEvent.Kind.ADDED
    text = f"{row.gpus} x {node.gpu_type}, {node.cpus} CPUs, {node.memory_mib} MiB, from a file"
    return {"node_id": node.pk, "kind": str(kind), "message": text, "actor_id": actor.pk if actor else None}
