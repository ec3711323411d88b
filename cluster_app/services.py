"""Verbs on the inventory: add GPUs, cordon, drain, resume, hear from nodes."""

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
    """Make the node have GPUs 0 to count - 1; GPUs beyond are taken out, those that were out come back."""
    Gpu.objects.bulk_create(
        [Gpu(node=node, index=index) for index in range(count)],
        update_conflicts=True,
        unique_fields=["node", "index"],
        update_fields=["present"],
    )
    Gpu.objects.filter(node=node, index__gte=count).update(present=False)


def refuse_taking_out_used_gpus(node: Node, count: int) -> None:
    """`GpusInUse` if a node with so many GPUs would lack some that a job has or awaits."""
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
    """Add a node with its GPUs, or bring the one of that name up to date."""
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
    """Place nothing new there; what runs goes on."""
    _take_out(node, Node.State.CORDONED, NodeEvent.Kind.CORDONED, reason=reason, actor=actor)
    note(Action.NODE_CORDON, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


@transaction.atomic
def drain(node: Node, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Place nothing new there, and move what runs away, gracefully."""
    _take_out(node, Node.State.DRAINING, NodeEvent.Kind.DRAINED, reason=reason, actor=actor)
    note(Action.NODE_DRAIN, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


@transaction.atomic
def resume(node: Node, *, actor: AbstractBaseUser | None, reason: str = "") -> None:
    """Take new jobs again."""
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
    """Write down what happened; the scheduler looks for news here."""
    NodeEvent.objects.create(node=node, kind=kind, message=message, actor_id=actor.pk if actor else None)


def hear_from(names: Iterable[str], *, now: datetime) -> None:
    """Note that these nodes are alive."""
    Node.objects.filter(name__in=list(names)).update(heard_at=now)


def note_gpu_health(node: str, healthy: Mapping[str, bool]) -> None:
    """What the hardware says of each GPU, by UUID; a GPU that fails gets no new job."""
    for fine in (True, False):
        uuids = [uuid for uuid, is_healthy in healthy.items() if is_healthy is fine]
        if uuids:  # of a declared node nothing is seen, at every look
            Gpu.objects.filter(node__name=node, uuid__in=uuids).exclude(healthy=fine).update(healthy=fine)


def judge_silence(now: datetime, *, listening_since: datetime) -> None:
    """Set each node's health by how long it has been silent."""
    for node in Node.objects.all():
        health = node.health_at(now, listening_since=listening_since)
        if health != node.health:
            Node.objects.filter(pk=node.pk).update(health=health)
            record(node, NodeEvent.Kind.HEALTH, f"{health.label}")
