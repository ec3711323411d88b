"""Retirement of nodes and GPU types: out of use for good, and kept because the history refers to them."""

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpuTypeRetired, StillInUse
from cluster_app.models import Gpu, GpuType, Node, NodeEvent, NodeInterval, NodePower
from cluster_app.node_history import censor_intervals
from cluster_app.services import checked_reason, record, set_gpu_count

MOST_NAMED = 5
NEVER_HEARD = {"health": Node.Health.UNKNOWN, "heard_at": None, "engine_reason": ""}


@transaction.atomic
def retire_node(node: Node, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Retire a node without jobs, by a conditional update: it and its GPUs are no part of the cluster any more."""
    reason = checked_reason(reason)
    claimed = Gpu.objects.filter(claims__isnull=False, claims__released_at=None).values("node")
    gpus = Gpu.objects.present().filter(node=node).count()
    columns = {"state": Node.State.RETIRED, "reason": reason, "retired_gpus": gpus, "maintenance_until": None}
    row = Node.objects.current().filter(pk=node.pk)
    if not row.exclude(pk__in=claimed).update(**columns, **NEVER_HEARD, given_back=False):
        if row.exists():
            raise StillInUse(f"Jobs run on {node}: drain it first, and retire it when it is drained.")
        return
    Gpu.objects.filter(node=node).update(present=False)
    NodePower.objects.filter(node=node).delete()
    censor_intervals([node.pk], timezone.now(), end=NodeInterval.End.RETIRED)
    record(node, NodeEvent.Kind.RETIRED, reason, actor=actor)
    note(Action.NODE_RETIRE, actor=actor, target=node.name, target_id=node.pk, message=reason)


@transaction.atomic
def restore_node(node: Node, *, actor: AbstractBaseUser | None) -> None:
    """Return a retired node to service with the GPUs that it had."""
    if node.gpu_type.retired_at is not None:
        raise GpuTypeRetired(node.gpu_type.name)
    row = Node.objects.filter(pk=node.pk, state=Node.State.RETIRED)
    if row.update(state=Node.State.READY, reason="", retired_gpus=0):
        set_gpu_count(node, node.retired_gpus)
        record(node, NodeEvent.Kind.RESTORED, actor=actor)
        note(Action.NODE_RESTORE, actor=actor, target=node.name, target_id=node.pk)


@transaction.atomic
def retire_gpu_type(gpu_type: GpuType, *, actor: AbstractBaseUser | None) -> None:
    """Retire a GPU type of which all nodes are retired: it is no longer offered."""
    nodes = list(Node.objects.current().filter(gpu_type=gpu_type).values_list("name", flat=True)[: MOST_NAMED + 1])
    if nodes:
        raise StillInUse(f"Nodes of the type {gpu_type} are in use: retire these first: {_some(nodes)}.")
    if GpuType.objects.current().filter(pk=gpu_type.pk).update(retired_at=timezone.now()):
        note(Action.GPU_TYPE_RETIRE, actor=actor, target=gpu_type.name, target_id=gpu_type.pk)


@transaction.atomic
def restore_gpu_type(gpu_type: GpuType, *, actor: AbstractBaseUser | None) -> None:
    """Offer a retired GPU type again; its nodes are restored one by one."""
    if GpuType.objects.exclude(retired_at=None).filter(pk=gpu_type.pk).update(retired_at=None):
        note(Action.GPU_TYPE_RESTORE, actor=actor, target=gpu_type.name, target_id=gpu_type.pk)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and more" if len(names) > MOST_NAMED else shown
