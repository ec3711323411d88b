"""Services of the inventory: add nodes and GPUs, cordon, drain, resume, sleep, wake."""

from collections.abc import Iterable
from datetime import datetime

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpusInUse, ReasonMissing
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Gpu, GpuType, Node, NodeEvent, NodePower
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
    """Return the node to service; one that was put to sleep is woken first."""
    if NodePower.objects.filter(node=node).exists():
        wake(node, reason=reason.strip() or "resumed by hand", now=timezone.now(), actor=actor)
    else:
        Node.objects.filter(pk=node.pk).update(state=Node.State.READY, reason="")
        record(node, NodeEvent.Kind.RESUMED, reason.strip(), actor=actor)
    note(Action.NODE_RESUME, actor=actor, target=node.name, target_id=node.pk, message=reason.strip())


@transaction.atomic
def put_to_sleep(node: Node, *, reason: str, now: datetime) -> bool:
    """Let a node in service sleep on which no GPU is claimed; False if one is, or somebody was first."""
    claimed = Gpu.objects.filter(claims__isnull=False, claims__released_at=None).values("node")
    free = Node.objects.filter(pk=node.pk, state=Node.State.READY).exclude(pk__in=claimed)
    if not free.update(state=Node.State.SLEEPING, reason=reason):
        return False
    _await_power(node, now)
    record(node, NodeEvent.Kind.SLEPT, reason)
    return True


@transaction.atomic
def wake(node: Node, *, reason: str, now: datetime, actor: AbstractBaseUser | None = None) -> None:
    """Begin to wake a node that was put to sleep: it takes jobs once its engine hears of it again."""
    Node.objects.filter(pk=node.pk).update(state=Node.State.WAKING, reason=reason)
    _await_power(node, now)
    record(node, NodeEvent.Kind.WOKEN, reason, actor=actor)


@transaction.atomic
def note_awake(node: Node) -> None:
    """Record that a node which was woken reports again: it takes jobs."""
    if Node.objects.filter(pk=node.pk, state=Node.State.WAKING).update(state=Node.State.READY, reason=""):
        NodePower.objects.filter(node=node).delete()
        record(node, NodeEvent.Kind.AWAKE)


@transaction.atomic
def give_up_waking(node: Node, *, reason: str) -> None:
    """Cordon a node that does not report although it was woken; a resume tries again."""
    if Node.objects.filter(pk=node.pk, state=Node.State.WAKING).update(state=Node.State.CORDONED, reason=reason):
        record(node, NodeEvent.Kind.CORDONED, reason)


def _await_power(node: Node, now: datetime) -> None:
    """The command for the node's new state is due."""
    unsent = {"since": now, "sent_at": None, "done_at": None, "fault": "", "times": 0, "retry_at": None}
    NodePower.objects.update_or_create(node=node, defaults=unsent)


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
