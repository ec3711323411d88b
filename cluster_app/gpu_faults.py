"""Faults of single GPUs: reported by the driver, a stray process, a critical error, a hook, or taken out by hand.

The rest of the node stays in use. A fault is taken back by its source alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction

from audit_app.models import Action, AuditEntry
from audit_app.services import note
from cluster_app.errors import ReasonMissing
from cluster_app.models import Gpu, Node, NodeEvent
from cluster_app.services import record
from database.bulk_insert import insert_many
from database.bulk_update import rewrite

Source = Gpu.FaultSource
MISSING = "the driver does not list it"
XID = "critical error: XID {} (look it up in NVIDIA's list of XIDs)"
NO_STRAY: Mapping[str, None] = {"stray_since": None, "stray_seen_at": None}
STRAY_AFTER = timedelta(seconds=30)
"""A process is left so long before its GPU is taken out of service: the end of an attempt takes seconds."""
UNCONFIRMED_AFTER = timedelta(minutes=10)
"""A process that was not seen for so long, though the node answers, counts as gone: its GPU is no longer read."""
LONGEST_GAP = timedelta(minutes=2)
"""Between two searches for such processes."""
MOST_OF_FAULT = 200


@dataclass(frozen=True)
class ReportedGpu:
    """Report of the driver on a GPU."""

    fault: str = ""
    xid: int = 0
    """A critical error that no job causes; 0: none."""
    xid_at: datetime | None = None
    """When it was heard of; it is reported for a minute, so that one whose storing failed is not lost."""


@dataclass(frozen=True)
class KnownGpu:
    """A GPU of the inventory with its fault."""

    pk: int
    node_id: int
    index: int
    fault: str
    fault_source: str

    @property
    def state(self) -> tuple[str, str]:
        return self.fault, self.fault_source


State = tuple[str, str]
"""Fault and its source; both empty: it is healthy."""


def note_gpu_reports(engines: Collection[str], reported: Mapping[str, Mapping[str, ReportedGpu]]) -> None:
    """Store the faults of these engines' GPUs as drivers report them: node → UUID → report.

    A GPU of the inventory that the report on its node does not name is missing.
    """
    reported = {node: gpus for node, gpus in reported.items() if gpus}
    if not reported:  # declared nodes report no hardware: no query for them
        return
    rows = Gpu.objects.present().filter(node__engine__name__in=engines, node__name__in=reported).exclude(uuid="")
    columns = ("pk", "node_id", "index", "fault", "fault_source", "uuid", "node__name")
    states = {}
    for *known, uuid, node in rows.values_list(*columns):
        gpu = KnownGpu(*known)
        report = reported[node].get(uuid, ReportedGpu(MISSING))
        states[gpu] = _reported_state(gpu, replace(report, xid=0) if _is_over(gpu, report) else report)
    store_states(states)


def _is_over(gpu: KnownGpu, report: ReportedGpu) -> bool:
    """Whether an administrator has returned the GPU since its critical error; a query only where there is one."""
    if not report.xid or report.xid_at is None or gpu.fault_source == Source.CORDON:
        return False
    returns = AuditEntry.objects.filter(action=Action.GPU_RETURN, target_id=str(gpu.pk))
    return returns.filter(at__gte=report.xid_at).exists()


def _reported_state(gpu: KnownGpu, report: ReportedGpu) -> State:
    """State after a driver's report: a critical error stays, and so does a fault that has another source."""
    if gpu.fault_source == Source.CORDON:
        return gpu.state
    if report.xid:
        return XID.format(report.xid), Source.CORDON
    if report.fault:
        return report.fault[:MOST_OF_FAULT], Source.DRIVER
    return ("", "") if gpu.fault_source == Source.DRIVER else gpu.state


@dataclass(frozen=True)
class StrayProcess:
    """A stray process on a GPU: when it was first and last seen."""

    since: datetime | None
    seen_at: datetime | None


def note_stray_processes(found: Mapping[int, Sequence[int]], now: datetime, *, watched_at: datetime) -> None:
    """Store stray processes: GPU → processes that no attempt accounts for, empty if there are none.

    After half a minute such a GPU is out of service, until the processes are gone, or were not seen for ten minutes.
    What was seen before GPUs went unwatched, as they were last at `watched_at`, is not counted: the process may be
    another.
    """
    is_gap = not timedelta() <= now - watched_at <= LONGEST_GAP
    strays = [pk for pk, processes in found.items() if processes]
    rows = Gpu.objects.filter(pk__in=strays) | Gpu.objects.filter(stray_since__isnull=False)
    columns = ("pk", "node_id", "index", "fault", "fault_source", "node__health", "stray_since", "stray_seen_at")
    times, states = {}, {}
    for *known, health, since, seen_at in rows.values_list(*columns):
        gpu, before = KnownGpu(*known), StrayProcess(since, seen_at)
        is_watched = not is_gap and health == Node.Health.HEALTHY
        stray = stray_now(found.get(gpu.pk), before, now, is_watched=is_watched)
        states[gpu] = _stray_state(gpu, found.get(gpu.pk, ()), stray.since, now)
        if stray != before:
            times[gpu.pk] = (stray.since, stray.seen_at)
    rewrite(Gpu, ("stray_since", "stray_seen_at"), times)
    store_states(states)


def stray_now(
    processes: Sequence[int] | None, before: StrayProcess, now: datetime, *, is_watched: bool
) -> StrayProcess:
    """Update of a stray process; `processes` is None if the GPU was not read. Pure."""
    if processes:
        return StrayProcess(before.since if is_watched and before.since else now, now)
    if processes is not None:
        return StrayProcess(None, None)
    seen_at = before.seen_at if is_watched and before.seen_at and before.seen_at <= now else now
    return StrayProcess(None, None) if now - seen_at > UNCONFIRMED_AFTER else StrayProcess(before.since, seen_at)


def _stray_state(gpu: KnownGpu, processes: Sequence[int], since: datetime | None, now: datetime) -> State:
    if gpu.fault_source not in ("", Source.PROCESS):
        return gpu.state
    if since is None:
        return "", ""
    if gpu.fault or not processes or now - since < STRAY_AFTER:
        return gpu.state
    named = ", ".join(map(str, processes[:3]))
    return f"no job accounts for the process{'es' * (len(processes) > 1)} {named} on it", Source.PROCESS


def note_failed_hooks(faults: Mapping[str, str]) -> None:
    """Take GPUs (by UUID) out of service on which the site's hook before or after a job failed.

    An administrator returns them: only a job would try them again.
    """
    if not faults:
        return
    rows = Gpu.objects.present().filter(uuid__in=faults).exclude(fault_source=Source.CORDON)
    columns = ("pk", "node_id", "index", "fault", "fault_source", "uuid")
    states = {}
    for *known, uuid in rows.values_list(*columns):
        states[KnownGpu(*known)] = (f"the site's hook failed: {faults[uuid]}"[:MOST_OF_FAULT], Source.CORDON)
    store_states(states)


def store_states(states: Mapping[KnownGpu, State]) -> None:
    """Store the states that have changed, each with an event of its node, which also wakes the scheduler.

    A GPU whose fault is no longer as it was read, as after a cordon meanwhile, is left for the next report.
    """
    news = {gpu: state for gpu, state in states.items() if state != gpu.state}
    as_read = _locked(news) if news else frozenset()
    changed = {gpu: state for gpu, state in news.items() if gpu in as_read}
    rewrite(Gpu, ("healthy", "fault", "fault_source"), {gpu.pk: (not any(s), *s) for gpu, s in changed.items()})
    insert_many(NodeEvent, list(_events(changed)))


def _locked(gpus: Iterable[KnownGpu]) -> AbstractSet[KnownGpu]:
    """These GPUs as they are now, locked; not against claims on them, which need only their keys."""
    rows = Gpu.objects.select_for_update(no_key=True).filter(pk__in=[gpu.pk for gpu in gpus]).order_by("pk")
    return {KnownGpu(*row) for row in rows.values_list("pk", "node_id", "index", "fault", "fault_source")}


def _events(changed: Mapping[KnownGpu, State]) -> Iterable[dict[str, object]]:
    for gpu, (fault, _) in changed.items():
        yield {"node_id": gpu.node_id, "kind": NodeEvent.Kind.GPU, "message": in_words(gpu.index, fault)[:300]}


def in_words(index: int, fault: str) -> str:
    return f"GPU {index} is out of service: {fault}" if fault else f"GPU {index} is back in service"


@transaction.atomic
def cordon_gpu(gpu: Gpu, *, reason: str, actor: AbstractBaseUser | None) -> None:
    """Give the GPU no new job until `return_gpu`; a running job goes on, and so does the rest of its node."""
    reason = reason.replace("\0", "").strip()[:MOST_OF_FAULT]
    if not reason:
        raise ReasonMissing
    Gpu.objects.filter(pk=gpu.pk).update(healthy=False, fault=reason, fault_source=Source.CORDON)
    record(gpu.node, NodeEvent.Kind.GPU, in_words(gpu.index, reason), actor=actor)
    note(Action.GPU_CORDON, actor=actor, target=str(gpu), target_id=gpu.pk, message=reason)


@transaction.atomic
def return_gpu(gpu: Gpu, *, actor: AbstractBaseUser | None) -> None:
    """Return a GPU to service; if the driver still reports a fault, it is out again at the next report."""
    Gpu.objects.filter(pk=gpu.pk).update(healthy=True, fault="", fault_source="", **NO_STRAY)
    record(gpu.node, NodeEvent.Kind.GPU, in_words(gpu.index, ""), actor=actor)
    note(Action.GPU_RETURN, actor=actor, target=str(gpu), target_id=gpu.pk)
