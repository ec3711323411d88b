"""Services of the inventory: add nodes and GPUs, cordon, drain, resume, give back, lend, sleep, wake."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpusInUse, GpuTypeRetired, InMaintenance, NodeRetired, NotLentNow, ReasonMissing
from cluster_app.lending import WindowChanges, hours_of, takes_jobs
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Gpu, GpuType, Node, NodeEvent, NodeInterval, NodePower
from cluster_app.node_history import begin_interval, censor_intervals

MOST_REASON = 200


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
    """Add a node with its GPUs, or update the node of that name; raise for a retired one, or of a retired type."""
    before = Node.objects.filter(name=name).first()
    refuse_retired(before, gpu_type)
    columns = {"gpu_type": gpu_type, "cpus": cpus, "memory_mib": memory_mib, "engine_id": engine, "emulated": emulated}
    node, created = Node.objects.update_or_create(name=name, defaults=columns)
    if before:
        unknown_if_moved(node, before)
    set_gpu_count(node, gpus)
    for index, uuid in enumerate(uuids):
        replaced = Gpu.objects.filter(node=node, index=index).exclude(uuid=uuid)
        healthy = {"healthy": True, "fault": "", "fault_source": "", "stray_since": None, "stray_seen_at": None}
        replaced.update(uuid=uuid, slower_by=0, slower_by_jobs=0, speed_since=timezone.now(), **healthy)
    kind = NodeEvent.Kind.ADDED if created else NodeEvent.Kind.CHANGED
    record(node, kind, f"{gpus} x {gpu_type}, {cpus} CPUs, {memory_mib / 1024:g} GiB")
    return node


def refuse_retired(node: Node | None, gpu_type: GpuType) -> None:
    """Raise `NodeRetired` or `GpuTypeRetired`."""
    if node is not None and node.state == Node.State.RETIRED:
        raise NodeRetired(node.name)
    if gpu_type.retired_at is not None:
        raise GpuTypeRetired(gpu_type.name)


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
    note(Action.NODE_CORDON, actor=actor, target=node.name, target_id=node.pk, message=_stored(reason))


@transaction.atomic
def drain(node: Node, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Drain the node: no new jobs, and running jobs are moved away gracefully."""
    _take_out(node, Node.State.DRAINING, NodeEvent.Kind.DRAINED, reason=reason, actor=actor)
    note(Action.NODE_DRAIN, actor=actor, target=node.name, target_id=node.pk, message=_stored(reason))


@transaction.atomic
def resume(node: Node, *, actor: AbstractBaseUser | None, reason: str = "") -> None:
    """Return the node to service; one that was put to sleep is woken first. The history of one in service has no event.

    Raise `NotLentNow` for one that its owner has back until its window begins, `InMaintenance` before its end.
    """
    reason = _stored(reason)
    if NodePower.objects.filter(node=node).exists():
        why, row = reason or "resumed by hand", Node.objects.filter(pk=node.pk)
        _wake(row, node, reason=why, now=timezone.now(), actor=actor)
    else:
        _refuse_not_lent(node, timezone.now())
        _refuse_in_maintenance(node, timezone.now())
        if _set_state(node, Node.State.READY, ""):  # or the timeline would have it out of service until now
            record(node, NodeEvent.Kind.RESUMED, reason, actor=actor)
    note(Action.NODE_RESUME, actor=actor, target=node.name, target_id=node.pk, message=reason)


def _refuse_not_lent(node: Node, now: datetime) -> None:
    if node.given_back and not takes_jobs(node, now):
        raise NotLentNow(node.name, hours_of(node))


def _refuse_in_maintenance(node: Node, now: datetime) -> None:
    if node.maintenance_until is not None and node.maintenance_until > now:
        raise InMaintenance(node.name, node.maintenance_until)


@transaction.atomic
def follow_windows(changes: WindowChanges, now: datetime) -> None:
    """Drain the nodes that are given back, and return to service those that are lent again."""
    for node in changes.given_back:
        if Node.objects.filter(pk=node.pk, state=Node.State.READY).update(**_given_back(node)):
            record(node, NodeEvent.Kind.DRAINED, _given_back(node)["reason"])
    for node in changes.woken:
        wake(node, reason="its owner has it back", now=now)
    for node in changes.lent:
        out = Node.objects.filter(pk=node.pk, given_back=True, state__in=(Node.State.DRAINING, Node.State.DRAINED))
        if out.update(state=Node.State.READY, reason="", given_back=False):
            record(node, NodeEvent.Kind.RESUMED, "lent again")


@transaction.atomic
def begin_maintenance(node: Node, *, reason: str, until: datetime) -> None:
    """Drain a node in service until then; one that is drained for a maintenance has this end and reason from now on."""
    why, ready = _short(reason), Node.objects.filter(pk=node.pk, state=Node.State.READY)
    if ready.update(state=Node.State.DRAINING, reason=why, maintenance_until=until):
        record(node, NodeEvent.Kind.DRAINED, why)
    else:
        Node.objects.filter(pk=node.pk, maintenance_until__isnull=False).update(reason=why, maintenance_until=until)


@transaction.atomic
def end_maintenance(node: Node, now: datetime) -> None:
    """Return a node to service that was drained for a maintenance, unless its owner has it back."""
    out = Node.objects.filter(pk=node.pk, maintenance_until__isnull=False)
    lent = takes_jobs(node, now)
    columns = {"state": Node.State.READY, "reason": ""} if lent else _given_back(node)
    drained = out.filter(state__in=(Node.State.DRAINING, Node.State.DRAINED))
    if drained.update(**columns, maintenance_until=None) and lent:
        record(node, NodeEvent.Kind.RESUMED, "maintenance is over")
    out.update(maintenance_until=None)


def _short(reason: str) -> str:
    """The reason, cut to the length of the column."""
    most = Node._meta.get_field("reason").max_length or 0
    return reason if len(reason) <= most else f"{reason[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _given_back(node: Node) -> dict[str, Any]:
    """Columns of a node that is given back to its owner."""
    reason = f"Given back to its owner: it is lent {hours_of(node)}"
    return {"state": Node.State.DRAINING, "reason": reason, "given_back": True}


@transaction.atomic
def put_to_sleep(node: Node, *, reason: str, now: datetime) -> bool:
    """Put an unused node in service to sleep; False if a GPU is claimed, others use it, or its state has changed."""
    claimed = Gpu.objects.filter(claims__isnull=False, claims__released_at=None).values("node")
    ready = Node.objects.filter(pk=node.pk, state=Node.State.READY, **dict.fromkeys(FOREIGN_USE, 0))
    free = ready.exclude(pk__in=claimed)
    if not free.update(state=Node.State.SLEEPING, reason=reason):
        return False
    _await_power(node, now, silent_at=None)
    censor_intervals([node.pk], now, end=NodeInterval.End.SLEPT)
    record(node, NodeEvent.Kind.SLEPT, reason)
    return True


@transaction.atomic
def wake(node: Node, *, reason: str, now: datetime) -> bool:
    """Begin to wake a node that sleeps; False if it does not, such as after a cordon, which only a resume lifts."""
    return _wake(Node.objects.filter(pk=node.pk, state=Node.State.SLEEPING), node, reason=reason, now=now)


def _wake(
    row: QuerySet[Node], node: Node, *, reason: str, now: datetime, actor: AbstractBaseUser | None = None
) -> bool:
    """Begin to wake the node if the row is there: it takes jobs once its engine hears of it again."""
    if not row.update(state=Node.State.WAKING, reason=reason):
        return False
    _await_power(node, now)
    record(node, NodeEvent.Kind.WOKEN, reason, actor=actor)
    return True


def note_awake(node: Node, now: datetime) -> None:
    """Record that a node which was woken reports again: it takes jobs."""
    _return_to_service(node, Node.State.WAKING, now)


def keep_awake(node: Node, *, reason: str, now: datetime) -> None:
    """Return a node to service that was to sleep, before its command is started."""
    _return_to_service(node, Node.State.SLEEPING, now, reason)


@transaction.atomic
def _return_to_service(node: Node, state: Node.State, now: datetime, message: str = "") -> None:
    lent = takes_jobs(node, now)
    columns = {"state": Node.State.READY, "reason": ""} if lent else _given_back(node)
    if Node.objects.filter(pk=node.pk, state=state).update(**columns):
        NodePower.objects.filter(node=node).delete()
        begin_interval(node, now)
        record(node, NodeEvent.Kind.AWAKE, message)
        if not lent:  # or the timeline would have it in service until it is lent again
            record(node, NodeEvent.Kind.DRAINED, columns["reason"])


@transaction.atomic
def give_up_waking(node: Node, *, reason: str) -> None:
    """Cordon a node that does not report although it was woken; a resume tries again."""
    if Node.objects.filter(pk=node.pk, state=Node.State.WAKING).update(state=Node.State.CORDONED, reason=reason):
        record(node, NodeEvent.Kind.CORDONED, reason)


def _await_power(node: Node, now: datetime, **columns: None) -> None:
    """Schedule the power command for the node's new state, after an earlier command whose end is not known."""
    before = NodePower.objects.select_for_update().filter(node=node).first()
    unsent = dict.fromkeys(("sent_at", "done_at", "failed_at"))
    due = {"since": now, "fault": "", "times": 0, "retry_at": _over_at(before) if before else None}
    NodePower.objects.update_or_create(node=node, defaults={**due, **unsent, **columns})


def _over_at(before: NodePower) -> datetime | None:
    """Time at which the node's earlier command is over; without failures `retry_at` is that of the one before it."""
    return before.over_at or (None if before.times else before.retry_at)


def note_drained(nodes: Iterable[Node]) -> None:
    """Record that draining nodes are empty."""
    for node in nodes:
        if Node.objects.filter(pk=node.pk, state=Node.State.DRAINING).update(state=Node.State.DRAINED):
            record(node, NodeEvent.Kind.EMPTIED)


def _take_out(
    node: Node, state: Node.State, kind: NodeEvent.Kind, *, reason: str, actor: AbstractBaseUser | None
) -> None:
    reason = checked_reason(reason)
    _set_state(node, state, reason)
    record(node, kind, reason, actor=actor)


def checked_reason(typed: str) -> str:
    """The reason as it is stored; raises `ReasonMissing`."""
    if reason := _stored(typed):
        return reason
    raise ReasonMissing


def _stored(typed: str) -> str:
    """The text without NUL, which PostgreSQL refuses, and no longer than the column: scripts may send more."""
    return typed.replace("\0", "").strip()[:MOST_REASON].strip()


def _set_state(node: Node, state: Node.State, reason: str) -> bool:
    """Set the state and its reason; whether it had another state."""
    row = Node.objects.current().filter(pk=node.pk)
    columns = {"state": state, "reason": reason, "given_back": False, "maintenance_until": None}
    changed = row.exclude(state=state).update(**columns)
    if not changed and not row.update(**columns):
        raise NodeRetired(node.name)
    return bool(changed)


def record(node: Node, kind: NodeEvent.Kind, message: str = "", *, actor: AbstractBaseUser | None = None) -> None:
    """Append to the node's history; new events wake the scheduler."""
    NodeEvent.objects.create(node=node, kind=kind, message=message, actor_id=actor.pk if actor else None)
