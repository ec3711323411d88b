"""Watch of GPUs: readings every ten seconds, stored by the minute; detects idle and slow GPUs, and stray processes."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import NamedTuple

from django.db.models import Q

from accounting_app.fairness.energy_ledger import ReadEnergy, add_energy_to_ledger
from accounting_app.gpu_watch.idle import IDLE_BELOW, note_idle_gpus
from accounting_app.gpu_watch.minutes import attempt_of, minute_of, store_readings
from accounting_app.gpu_watch.speeds import is_due, note_gpu_speeds
from cluster_app.gpu_faults import note_stray_processes
from cluster_app.models import Gpu, Node
from connections_app.agents.engine import AgentEngine, JoinedMachines
from connections_app.engine_registry import engines
from database.bulk_update import rewrite
from engines.protocol import EngineError, GpuReading, WatchedGpu
from jobs_app.models import Attempt, GpuClaim
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Fence
from scheduler_app.round.set_aside import OF_NO_ITEM

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=10)
LONGEST_GAP = timedelta(seconds=30)
"""A reading of power counts for the time since the one before, but no longer."""
MOST_READ, MOST_PARTS = 1024, 5
"""GPUs of one turn: more of them are read in parts, a part each turn, but each GPU once a minute at least, where a
turn that is due after ten seconds comes after twelve."""
_looks = count()
"""Of this process: parts follow one another whatever the time between turns."""


class Holder(NamedTuple):
    """The attempt that holds a GPU, and its state."""

    attempt: int
    state: str


def watch_gpus(fence: Fence, now: datetime) -> None:
    """Read all GPUs if due, and store the results; an error stops nothing else of the iteration."""
    before = _read_before(now)
    if before is None:
        return
    try:
        _watch(fence, before, now)
    except OF_NO_ITEM:
        raise
    except Exception:
        log.exception("what was read of GPUs could not be stored")


def _watch(fence: Fence, before: datetime, now: datetime) -> None:
    """Read in one pass per engine, outside transactions; store readings, energy, idle and slow GPUs."""
    holders = _holders()
    watched = list(_watched(holders))
    parts = number_of_parts(len(watched))
    readings = _readings(part_of(watched, next(_looks) % parts, parts))
    processes = _stray_processes(readings)
    attempts = {gpu: holder.attempt for gpu, holder in holders.items()}
    with fence.transaction():
        SchedulerLease.objects.filter(pk=SchedulerLease.Loop.ENGINES).update(watched_at=now)
        store_readings(readings, attempts, now)
        note_stray_processes(processes, now, watched_at=before)
        lasted = min(now - before, LONGEST_GAP)
        energy = _add_energy(readings, attempts, parts * lasted)
    with fence.transaction():  # of its own: rounds lock these rows before they write attempts
        add_energy_to_ledger(energy, now - lasted, now)
    if minute_of(before) != minute_of(now):
        _note(fence, note_idle_gpus, now)
    if is_due(before, now):
        _note(fence, note_gpu_speeds, now)


def _note(fence: Fence, note: Callable[[datetime], None], now: datetime) -> None:
    """Note what follows from readings of before, in a transaction of its own: it locks jobs before attempts.

    An error of it must not keep what was read now from being stored, or the next turn would begin with the same error.
    """
    try:
        with fence.transaction():
            note(now)
    except OF_NO_ITEM:
        raise
    except Exception:
        log.exception("%s failed", note.__name__)


def _read_before(now: datetime) -> datetime | None:
    """Time of the last reading, now if there is none; None if the next is not due yet."""
    before = SchedulerLease.objects.values_list("watched_at", flat=True).get(pk=SchedulerLease.Loop.ENGINES)
    if before is None or before > now:  # a clock was set back
        return now
    return before if now - before >= EVERY else None


def _holders() -> dict[int, Holder]:
    rows = GpuClaim.objects.holding().values_list("gpu", "attempt", "attempt__state")
    return {gpu: Holder(attempt, state) for gpu, attempt, state in rows}


def number_of_parts(gpus: int) -> int:
    return min(max(1, -(-gpus // MOST_READ)), MOST_PARTS)


def part_of(watched: Sequence[tuple[str, WatchedGpu]], part: int, parts: int) -> list[tuple[str, WatchedGpu]]:
    """The GPUs of a part of the nodes; those of one node together: a site may have given others of them than ours."""
    places = {node: place for place, node in enumerate(dict.fromkeys(gpu.node for _, gpu in watched))}
    return [(engine, gpu) for engine, gpu in watched if places[gpu.node] % parts == part]


def _readings(watched: Iterable[tuple[str, WatchedGpu]]) -> list[GpuReading]:
    """Readings of every engine that has GPUs to read, and of all agents together.

    One that does not answer stops no other.
    """
    by_engine: dict[str, list[WatchedGpu]] = defaultdict(list)
    for engine, gpu in watched:
        by_engine[engine].append(gpu)
    found: list[GpuReading] = []
    for name, read in _ways_to_read(by_engine) if by_engine else ():
        try:
            found += read()
        except EngineError as error:
            log.info("the GPUs of %s are not read: %s", name, error)
        except OF_NO_ITEM:
            raise
        except Exception:  # of this engine alone
            log.exception("the GPUs of %s could not be read", name)
    return found


def _ways_to_read(
    by_engine: Mapping[str, Sequence[WatchedGpu]],
) -> Iterator[tuple[str, Callable[[], list[GpuReading]]]]:
    known = engines()
    joined = {name: gpus for name, gpus in by_engine.items() if isinstance(known[name], AgentEngine)}
    for name in by_engine.keys() - joined.keys():
        yield name, partial(known[name].read_gpus, by_engine[name])
    if joined:
        yield "machines that joined", partial(JoinedMachines().read_gpus, joined)


def _watched(holders: Mapping[int, Holder]) -> Iterator[tuple[str, WatchedGpu]]:
    """GPUs of nodes that are up, with their engines: those that a driver knows, emulated ones, those beside a claim."""
    up = Gpu.objects.present().filter(node__health=Node.Health.HEALTHY)
    held = GpuClaim.objects.holding().values("gpu__node")
    readable = up.filter(~Q(uuid="") | Q(node__emulated=True) | Q(node__in=held)).order_by("node", "index")
    kind = "node__gpu_type__"
    columns = ("node__name", "index", "uuid", "node__emulated", f"{kind}memory_mib", f"{kind}power_w")
    for engine, pk, node, index, uuid, emulated, memory_mib, power_w in readable.values_list(
        "node__engine__name", "pk", *columns
    ):
        holder = holders.get(pk)
        busy = holder is not None and holder.state == Attempt.State.RUNNING
        attempt = holder.attempt if holder is not None else None
        yield engine, WatchedGpu(pk, node, index, uuid, emulated, busy, attempt, memory_mib, power_w)


def _stray_processes(readings: Iterable[GpuReading]) -> dict[int, Sequence[int]]:
    """GPU → stray processes on it, as far as they are known.

    Claims are read after the driver was asked: a process of an attempt that had begun by then has its claim.
    """
    known = {one.gpu: one.processes for one in readings if one.processes is not None}
    if not any(known.values()):
        return known
    holders = {gpu: holder for gpu, holder in _holders().items() if holder.state != Attempt.State.ENDED}
    return {gpu: () if gpu in holders else processes for gpu, processes in known.items()}


def _add_energy(readings: Iterable[GpuReading], holders: Mapping[int, int], lasted: timedelta) -> list[ReadEnergy]:
    """Add the energy since the last reading, power times time, to the attempts that have the GPUs."""
    watts: dict[int, list[float]] = defaultdict(list)
    uses: dict[int, list[float]] = defaultdict(list)
    for one in readings:
        if (attempt := attempt_of(one, holders)) is not None:
            watts[attempt] += [] if one.power_w is None else [one.power_w]
            uses[attempt] += [] if one.utilization is None else [one.utilization]
    seconds = lasted.total_seconds()
    rows = Attempt.objects.filter(pk__in=watts).values_list("pk", "gpu_energy_j", "job__team", "gpu_type")
    known = list(rows)
    energy_j = {pk: ((before or 0.0) + seconds * sum(watts[pk]),) for pk, before, *_ in known if watts[pk]}
    rewrite(Attempt, ("gpu_energy_j",), energy_j)
    return [_read_of(team, kind, watts[pk], uses[pk], seconds) for pk, _, team, kind in known]


def _read_of(team: int, kind: int, watts: Sequence[float], uses: Sequence[float], seconds: float) -> ReadEnergy:
    """Energy and idle time of these seconds, from a reading of an attempt's GPUs (power in W, utilization in %)."""
    idle = sum(use < IDLE_BELOW for use in uses)
    return ReadEnergy(team, kind, seconds * sum(watts), seconds * len(watts), seconds * len(uses), seconds * idle)
