"""Services of the inventory: add nodes and GPUs, cordon, drain, resume, record heartbeats and health."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpusInUse, ReasonMissing
from cluster_app.models import Gpu, GpuType, Node, NodeEvent


@transaction.atomic
def set_gpu_count(node: Node, count: int) -> None:
    """Give the node GPUs 0 to count - 1: insert or restore these, and mark all others as removed."""
    Gpu.objects.bulk_create(
        [Gpu(node=node, index=index) for index in range(count)],
        update_conflicts=True,
        unique_fields=["node", "index"],
        update_fields=["present"],
    )
    Gpu.objects.filter(node=node, index__gte=count).update(present=False)


def refuse_taking_out_used_gpus(node: Node, count: int) -> None:
    """Raise `GpusInUse` if a GPU beyond this count is claimed by a job."""
    beyond = Gpu.objects.present().filter(node=node, index__gte=count)
    if used := beyond.filter(claims__isnull=False, claims__released_at=None).distinct().count():
        raise GpusInUse(node.name, used)


@transaction.atomic
def add_node(
    name: str,
    gpu_type: GpuType,
    *,
    gpus: int,
    cpus: int,
    memory_mib: int,
    emulated: bool = False,
    uuids: Iterable[str] = (),
) -> Node:
    """Add a node with its GPUs, or update the node of that name."""
    node, created = Node.objects.update_or_create(
        name=name, defaults={"gpu_type": gpu_type, "cpus": cpus, "memory_mib": memory_mib, "emulated": emulated}
    )
    set_gpu_count(node, gpus)
    for index, uuid in enumerate(uuids):
        Gpu.objects.filter(node=node, index=index).update(uuid=uuid)
    kind = NodeEvent.Kind.ADDED if created else NodeEvent.Kind.CHANGED
    record(node, kind, f"{gpus} x {gpu_type}, {cpus} CPUs, {memory_mib} MiB")
    return node


@transaction.atomic
def cordon(node: Node, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Cordon the node: no new jobs; running jobs go on."""
    _take_out(node, Node.State.CORDONED, NodeEvent.Kind.CORDONED, reason=reason, actor=actor)
    note(Action.NODE_CORDON, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


@transaction.atomic
def drain(node: Node, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Drain the node: no new jobs, and running jobs are moved away gracefully."""
    _take_out(node, Node.State.DRAINING, NodeEvent.Kind.DRAINED, reason=reason, actor=actor)
    note(Action.NODE_DRAIN, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


@transaction.atomic
def resume(node: Node, *, actor: AbstractBaseUser | None, reason: str = "") -> None:
    """Return the node to service."""
    Node.objects.filter(pk=node.pk).update(state=Node.State.READY, reason="")
    record(node, NodeEvent.Kind.RESUMED, reason.strip(), actor=actor)
    note(Action.NODE_RESUME, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


def _take_out(
    node: Node, state: Node.State, kind: NodeEvent.Kind, *, reason: str, actor: AbstractBaseUser | None
) -> None:
    if not reason.strip():
        raise ReasonMissing
    Node.objects.filter(pk=node.pk).update(state=state, reason=reason.strip())
    record(node, kind, reason.strip(), actor=actor)


def record(node: Node, kind: NodeEvent.Kind, message: str = "", *, actor: AbstractBaseUser | None = None) -> None:
    """Append to the node's history; new events wake the scheduler."""
    NodeEvent.objects.create(node=node, kind=kind, message=message, actor_id=actor.pk if actor else None)


def record_heartbeats(names: Iterable[str], *, now: datetime) -> None:
    """Record that these nodes are alive."""
    Node.objects.filter(name__in=list(names)).update(heard_at=now)


def note_gpu_health(node: str, healthy: Mapping[str, bool]) -> None:
    """Store the health of GPUs by UUID, as the driver reports it; an unhealthy GPU gets no new job."""
    for fine in (True, False):
        uuids = [uuid for uuid, is_healthy in healthy.items() if is_healthy is fine]
        if uuids:  # declared nodes report no hardware: no query for them
            Gpu.objects.filter(node__name=node, uuid__in=uuids).exclude(healthy=fine).update(healthy=fine)


def update_node_health(now: datetime, *, listening_since: datetime) -> None:
    """Derive each node's health from its last heartbeat; a change is recorded as an event."""
    for node in Node.objects.all():
        health = node.health_at(now, listening_since=listening_since)
        if health != node.health:
            Node.objects.filter(pk=node.pk).update(health=health)
            record(node, NodeEvent.Kind.HEALTH, f"{health.label}")
