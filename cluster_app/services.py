"""Services of the inventory: add nodes and GPUs, cordon, drain, resume."""

from collections.abc import Iterable

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpusInUse, ReasonMissing
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Gpu, GpuType, Node, NodeEvent
from cluster_app.node_history import censor_intervals


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
    engine: str = LOCAL_ENGINE,
    emulated: bool = False,
    uuids: Iterable[str] = (),
) -> Node:
    """Add a node with its GPUs, or update the node of that name."""
    before = Node.objects.filter(name=name).first()
    columns = {"gpu_type": gpu_type, "cpus": cpus, "memory_mib": memory_mib, "engine_id": engine, "emulated": emulated}
    node, created = Node.objects.update_or_create(name=name, defaults=columns)
    if before:
        unknown_if_moved(node, before)
    set_gpu_count(node, gpus)
    for index, uuid in enumerate(uuids):
        Gpu.objects.filter(node=node, index=index).update(uuid=uuid)
    kind = NodeEvent.Kind.ADDED if created else NodeEvent.Kind.CHANGED
    record(node, kind, f"{gpus} x {gpu_type}, {cpus} CPUs, {memory_mib} MiB")
    return node


def unknown_if_moved(node: Node, before: Node) -> None:
    """Forget the heartbeats of a node that was given to another engine, or is emulated now or no longer.

    What was heard of it was said of another machine.
    """
    if (node.engine_id, node.emulated) != (before.engine_id, before.emulated):
        unused = dict.fromkeys(FOREIGN_USE, 0)
        unknown = {"health": Node.Health.UNKNOWN, "heard_at": None, "engine_reason": "", **unused}
        Node.objects.filter(pk=node.pk).update(**unknown)
        censor_intervals([node.pk], timezone.now())
        node.refresh_from_db()


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


def note_drained(nodes: Iterable[Node]) -> None:
    """Record that draining nodes are empty."""
    for node in nodes:
        if Node.objects.filter(pk=node.pk, state=Node.State.DRAINING).update(state=Node.State.DRAINED):
            record(node, NodeEvent.Kind.EMPTIED)


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
