"""CPUs and memory of a round's attempts by Synergy-TUNE, on the GPUs that its plan gives them.

What CPUs gain a job is what it declares, else what was measured of its workload. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np

from allocation.cpu_memory.sensitivity import CPUS, MEMORY
from allocation.cpu_memory.tune import (
    ROUNDING,
    UNITS,
    Shares,
    floors,
    floors_of,
    largest_amounts,
    largest_demand_first,
    raise_shares,
    shares_left,
    tune,
)
from allocation.demands import MIB_PER_GIB
from allocation.plan_round import Plan
from allocation.types import Bools, Floats, Ints
from jobs_app.models import Attempt
from scheduler_app.round.demands import (
    LEAST,
    best_amount,
    capacity_of_nodes,
    gpus_of_nodes,
    in_units,
    least_amounts,
    storage_of,
    units_of,
)
from scheduler_app.round.inputs import AttemptRow, DeclaredSensitivity, Gang, InputRows, JobRow, MeasuredCurve
from scheduler_app.round.snapshot import Snapshot

How = Attempt.CpuMemory
HEADROOM = 1.1
"""Of the memory that a job was measured to hold: it is sampled."""


class CpuMemory(NamedTuple):
    """CPUs and memory per GPU of an attempt; 0: as the job asked."""

    cpus_per_gpu: int
    memory_per_gpu_mib: int
    cpu_memory: str
    """Of `Attempt.CpuMemory`."""


AS_ASKED = CpuMemory(0, 0, "")


class ChangedShare(NamedTuple):
    """Changed CPU and memory share of a running attempt, with the columns that the commit needs."""

    job: UUID
    nodes: frozenset[str]
    """Names of its nodes."""
    share: CpuMemory


@dataclass(frozen=True)
class CpuMemoryShares:
    """CPUs and memory that a round assigns: to rows that start, and to running attempts whose share it changes."""

    starting: Mapping[int, CpuMemory] = field(default_factory=dict)
    lowered: Mapping[int, ChangedShare] = field(default_factory=dict)
    raised: Mapping[int, ChangedShare] = field(default_factory=dict)
    """Attempts on nodes on which nothing starts: whatever becomes of the starts, there is enough for them."""
    overdrawn: frozenset[str] = frozenset()
    """Names of nodes on which attempts have more than there is before anything starts."""

    def of(self, row: int) -> CpuMemory:
        """Share of a row that starts."""
        return self.starting.get(row, AS_ASKED)

    @property
    def changed(self) -> frozenset[UUID]:
        """Jobs of the running attempts that may get another share."""
        return frozenset(one.job for one in (*self.lowered.values(), *self.raised.values()))

    def changed_with(self, nodes: Collection[str]) -> dict[int, CpuMemory]:
        """New shares of running attempts if jobs start on these nodes only.

        Lowered are those there, and on nodes that are overdrawn.
        """
        there = self.overdrawn.union(nodes)
        lowered = {attempt: one for attempt, one in self.lowered.items() if not there.isdisjoint(one.nodes)}
        return {attempt: one.share for attempt, one in {**self.raised, **lowered}.items()}


AS_JOBS_ASKED = CpuMemoryShares()


@dataclass(frozen=True)
class Occupant:
    """A job that will hold GPUs after the round: as an attempt that it has, or as a row of the snapshot that starts."""

    job: JobRow
    gpus: Counter[int]
    """Node, by its place among the rows → GPUs there."""
    row: int = -1
    attempt: AttemptRow | None = None
    measured: MeasuredCurve | None = None

    @property
    def sensitivity(self) -> DeclaredSensitivity | None:
        """As the job declares, else as measured; None: unknown."""
        return self.job.sensitivity or (self.measured.sensitivity if self.measured else None)

    def how(self, cpus: float) -> Attempt.CpuMemory:
        """How these CPUs per GPU were chosen."""
        if self.job.sensitivity is None and self.measured is not None and cpus > self.measured.most_tried:
            return How.TRIED
        return How.TUNED if self.sensitivity else How.PROPORTIONAL

    @property
    def fixed(self) -> Floats:
        """CPUs and GiB (2,) that the job asks for; 0: none."""
        return np.array([self.job.cpus_per_gpu, self.job.memory_per_gpu_mib / MIB_PER_GIB])

    @property
    def given(self) -> tuple[float, float]:
        """CPUs and GiB per GPU that an attempt has, as the job asks or by an earlier round; 0: nobody has said."""
        job, attempt = self.job, self.attempt
        cpus = job.cpus_per_gpu or (attempt.cpus_per_gpu if attempt else 0)
        memory_mib = job.memory_per_gpu_mib or (attempt.memory_per_gpu_mib if attempt else 0)
        return cpus, memory_mib / MIB_PER_GIB

    @property
    def held(self) -> Floats:
        """CPUs, which are not held, and GiB (2,) per GPU that an attempt was measured to hold, file caches left out.

        All that it has, as long as nothing was measured. The peak may be that of the node with its fewest GPUs.
        """
        attempt = self.attempt
        if attempt is None:
            return np.zeros(2)
        if not attempt.peak_memory_mib:
            return np.array([0.0, np.inf])
        return np.array([0.0, HEADROOM * attempt.peak_memory_mib / min(self.gpus.values()) / MIB_PER_GIB])

    @property
    def wish(self) -> Floats:
        """CPUs and GiB (2,) per GPU with which it was launched, and which it may have again; 0: as it asked."""
        attempt = self.attempt
        if attempt is None or attempt.cpu_memory != How.REVERTED:
            return np.zeros(2)
        return np.array([attempt.told_cpus_per_gpu, attempt.told_memory_per_gpu_mib / MIB_PER_GIB])

    @property
    def shared(self) -> Floats:
        """CPUs and GiB (2,) that an earlier round gave the attempt; 0: none."""
        attempt = self.attempt
        return np.array([attempt.cpus_per_gpu, attempt.memory_per_gpu_mib / MIB_PER_GIB] if attempt else [0.0, 0.0])


def share_cpus_and_memory(
    rows: InputRows, snapshot: Snapshot, plan: Plan, *, starting: Collection[int]
) -> CpuMemoryShares:
    """Tune the shares of rows that start, lower those of running jobs where others need their floor, and raise those
    that were lowered where others have left. Pure.

    Tuned are nodes on which a row starts or attempts have more than there is, and the jobs on them; what these have
    elsewhere is not raised in the same round.
    """
    occupants = list(_occupants(rows, snapshot, plan, starting))
    there = [one for one in occupants if all(rows.nodes[v].tunes for v in one.gpus)]
    booked = dict(_booked([one for one in occupants if not all(rows.nodes[v].tunes for v in one.gpus)], rows))
    overdrawn = _overdrawn(there, rows)
    nodes = sorted(overdrawn.union(*(one.gpus for one in there if one.row >= 0)))
    raised = dict(_raised(there, rows, nodes))
    jobs = [one for one in there if not one.gpus.keys().isdisjoint(nodes)]
    if not jobs:
        return CpuMemoryShares(booked, raised=raised)
    shares = _shares(jobs, rows, nodes)
    names = frozenset(rows.nodes[v].name for v in overdrawn)
    return CpuMemoryShares(booked | dict(_starting(jobs, shares)), dict(_lowered(jobs, shares)), raised, names)


def _booked(jobs: Sequence[Occupant], rows: InputRows) -> Iterator[tuple[int, CpuMemory]]:
    """Shares of rows that start on nodes that book them for as long as the job runs: Slurm's."""
    nodes = sorted(set().union(*(one.gpus for one in jobs if one.row >= 0)))
    beside = [one for one in jobs if not one.gpus.keys().isdisjoint(nodes)]
    return _starting(beside, _booked_shares(beside, rows, nodes)) if nodes else iter(())


def _booked_shares(jobs: Sequence[Occupant], rows: InputRows, nodes: Sequence[int]) -> Shares:
    """Synergy-TUNE where nothing can be lowered later: GPUs that stay idle keep their share.

    So no job that starts later waits for CPUs which one has that could do without: what starts gets beyond its share
    only what others leave of theirs.
    """
    gpus, capacity, node_gpus = _placed(jobs, nodes), capacity_of_nodes(rows)[nodes], gpus_of_nodes(rows)[nodes]
    fixed = np.array([_booked_amount(one, rows) for one in jobs])
    left = in_units(shares_left(gpus, fixed, capacity, node_gpus), units_of(rows)[nodes])
    share = np.maximum(left, least_amounts(rows)[nodes])
    floor = floors_of(gpus, fixed, share)
    idle = np.maximum(node_gpus - gpus.sum(axis=0), 0)
    capacity = np.maximum(capacity - idle[:, None] * share, gpus.T @ floor)
    low = np.minimum(_booked_demands(jobs, rows, floor, largest_amounts(gpus, capacity)), floor)
    most = low + largest_amounts(gpus, np.maximum(capacity - gpus.T @ low, 0))
    demand = _booked_demands(jobs, rows, floor, np.maximum(most, floor))
    return tune(gpus, floor, demand, capacity, _order(jobs, gpus, demand))


def _booked_demands(jobs: Sequence[Occupant], rows: InputRows, floor: Floats, most: Floats) -> Floats:
    """Demands (m, 2), of running jobs what was booked; none is below what its engine books anyway."""
    least, unit = (
        np.array([of[list(one.gpus)].max(axis=0) for one in jobs]) for of in (least_amounts(rows), units_of(rows))
    )
    most = np.maximum(in_units(most, unit), floor)
    demand = np.array([_demand(one, rows, *bounds) for one, *bounds in zip(jobs, floor, most, strict=True)])
    demand = np.minimum(in_units(demand, unit, up=True), most)
    return np.where(_runs(jobs)[:, None], floor, np.maximum(demand, np.minimum(least, floor)))


def _booked_amount(one: Occupant, rows: InputRows) -> Floats:
    """CPUs and GiB (2,) per GPU that are booked of an attempt, or that a job that starts asks for; 0: its share."""
    gpus, nodes = min(one.gpus.values()), list(one.gpus)
    given = in_units(gpus * np.array(one.given), units_of(rows)[nodes].max(axis=0), up=True) / gpus
    booked: Floats = np.maximum(given, least_amounts(rows)[nodes].max(axis=0))
    return booked if one.attempt is not None else np.where(one.fixed > 0, booked, 0)


def _raised(jobs: Sequence[Occupant], rows: InputRows, tuned: Sequence[int]) -> Iterator[tuple[int, ChangedShare]]:
    """Attempts, on none of the nodes that are tuned, that can have again what they were launched with.

    Not more than that: a job starts as many workers as it was told CPUs. Of an attempt of which nobody has said what
    it has, the proportional share counts.
    """
    lowered = [one for one in jobs if _may_be_raised(one, tuned)]
    nodes = sorted(set().union(*(one.gpus for one in lowered)))
    beside = [one for one in jobs if not one.gpus.keys().isdisjoint(nodes)]
    if not lowered:
        return
    capacity = capacity_of_nodes(rows)[nodes]
    gpus = _placed(beside, nodes)
    share = floors(gpus, np.array([one.given for one in beside]), capacity, gpus_of_nodes(rows)[nodes])
    wish = np.array([_raised_amount(one, has, tuned) for one, has in zip(beside, share, strict=True)])
    order = [i for i in largest_demand_first(gpus.sum(axis=1), wish).tolist() if np.any(wish[i] > share[i])]
    gets = raise_shares(gpus, share, wish, capacity - gpus.T @ share, np.array(order, dtype=np.int64))
    for one, amount, raised in zip(beside, wish, gets.tolist(), strict=True):
        if raised and one.attempt is not None:
            given = _given(one, amount, How.RAISED)
            yield one.attempt.id, ChangedShare(one.attempt.job_id, frozenset(one.attempt.nodes), given)


def _may_be_raised(one: Occupant, tuned: Sequence[int]) -> bool:
    return bool(np.any(one.wish > one.shared)) and one.gpus.keys().isdisjoint(tuned)


def _raised_amount(one: Occupant, has: Floats, tuned: Sequence[int]) -> Floats:
    """What an attempt (2,) that was lowered would have again; of others, what they have."""
    return np.where(one.wish > one.shared, one.wish, has) if _may_be_raised(one, tuned) else has


def _shares(jobs: Sequence[Occupant], rows: InputRows, nodes: Sequence[int]) -> Shares:
    """Synergy-TUNE on these nodes."""
    gpus, capacity, node_gpus = _placed(jobs, nodes), capacity_of_nodes(rows)[nodes], gpus_of_nodes(rows)[nodes]
    fixed = np.array([one.fixed for one in jobs])
    floor = np.maximum(_floors(jobs, gpus, fixed, capacity, node_gpus), np.where(fixed > 0, 0, LEAST))
    most = largest_amounts(gpus, capacity)
    demand = np.array([_demand(one, rows, *bounds) for one, *bounds in zip(jobs, floor, most, strict=True)])
    least = np.where(_runs(jobs)[:, None], np.minimum(floor, demand), floor)
    return tune(gpus, least, demand, np.maximum(capacity, gpus.T @ least), _order(jobs, gpus, demand))


def _floors(jobs: Sequence[Occupant], gpus: Ints, fixed: Floats, capacity: Floats, node_gpus: Ints) -> Floats:
    """Floors (m, 2); attempts keep of their share what they were measured to hold.

    The others keep their floor: less memory would have a job killed that is well within its proportional share.
    """
    held = np.ceil(np.array([np.minimum(one.held, one.shared) for one in jobs]) * UNITS) / UNITS
    least: Floats = np.maximum(floors(gpus, fixed, capacity, node_gpus), held)
    return least


def _occupants(rows: InputRows, snapshot: Snapshot, plan: Plan, starting: Collection[int]) -> Iterator[Occupant]:
    """Rows that the plan gives GPUs, and attempts that hold or wait for other GPUs.

    An attempt that stops, or that the plan stops, holds what it has until it is gone.
    """
    place, curves = {node.id: index for index, node in enumerate(rows.nodes)}, rows.cpu_curves or {}
    jobs = {str(pk): job for pk, job in rows.jobs_of_attempts.items()}
    owner = {gpu: row for gpu, row in zip(snapshot.gpus, plan.owner.tolist(), strict=True) if row >= 0}
    planned, others = defaultdict[int, Counter[int]](Counter), defaultdict[int, Counter[int]](Counter)
    for gpu in rows.gpus:
        held_by = rows.waiting_claims.get(gpu.id) or rows.holders.get(gpu.id, 0)
        holders, key = (planned, owner[gpu.id]) if gpu.id in owner else (others, held_by)
        holders[key][place[gpu.node_id]] += 1
    for row, on in planned.items():
        job = jobs[snapshot.jobs[row]]
        if row in starting:
            yield Occupant(job, on, row, measured=curves.get(_gang_of(job, on, rows)))
        else:
            yield Occupant(job, on, attempt=rows.attempts.get(snapshot.attempts[row]))
    for pk, on in others.items():
        known = rows.attempts.get(pk)
        if known is not None and str(known.job_id) in jobs:
            yield Occupant(jobs[str(known.job_id)], on, attempt=known)


def _gang_of(job: JobRow, on: Counter[int], rows: InputRows) -> Gang:
    gpu_type = rows.nodes[next(iter(on))].gpu_type_id
    return Gang(job.team_id, job.workload, gpu_type, on.total(), len(on))


def _overdrawn(jobs: Iterable[Occupant], rows: InputRows) -> set[int]:
    """Overcommitted nodes: only a part of an earlier plan was carried out there."""
    held = [(v, gpus, *one.given) for one in jobs if one.attempt for v, gpus in one.gpus.items()]
    node, count, *amount = np.array(held, dtype=float).reshape(-1, 4).T
    given = np.zeros((len(rows.nodes), 2))
    np.add.at(given, node.astype(np.int64), (count * amount).T)
    return set(np.flatnonzero(np.any(given > capacity_of_nodes(rows) + ROUNDING, axis=1)).tolist())


def _placed(jobs: Sequence[Occupant], nodes: Sequence[int]) -> Ints:
    """GPUs (m, N) of each job on each of these nodes."""
    place = {v: n for n, v in enumerate(nodes)}
    gpus = np.zeros((len(jobs), len(nodes)), dtype=np.int64)
    for i, one in enumerate(jobs):
        on = one.gpus.keys() & place.keys()
        gpus[i, [place[v] for v in on]] = [one.gpus[v] for v in on]
    return gpus


def _demand(one: Occupant, rows: InputRows, floor: Floats, most: Floats) -> Floats:
    """Demand (2,) per GPU: what an attempt has, what is best for a job that starts, else the floor."""
    if one.attempt is not None:
        return np.where((one.shared > 0) & (one.fixed == 0), one.shared, floor)
    if one.sensitivity is None:
        return floor
    storage = storage_of([rows.nodes[v] for v in one.gpus], max(one.gpus.values()))
    best = best_amount(one.sensitivity, floor, np.where(one.fixed > 0, floor, most), storage)
    return np.where(one.fixed > 0, floor, best)


def _runs(jobs: Sequence[Occupant]) -> Bools:
    """Whether each job (m,) already runs, so that its share can be lowered but not raised."""
    return np.array([one.row < 0 for one in jobs], dtype=np.bool_)


def _order(jobs: Sequence[Occupant], gpus: Ints, demand: Floats) -> Ints:
    """Running jobs before starting ones, each the largest demand first."""
    order = largest_demand_first(gpus.sum(axis=1), demand)
    runs = _runs(jobs)[order]
    return np.concatenate([order[runs], order[~runs]])


def _starting(jobs: Sequence[Occupant], shares: Shares) -> Iterator[tuple[int, CpuMemory]]:
    for one, amount, reverted in zip(jobs, shares.amount, shares.reverted.tolist(), strict=True):
        how = How.REVERTED if reverted else one.how(amount[CPUS])
        share = _given(one, amount, how)
        if one.row >= 0 and (share.cpus_per_gpu or share.memory_per_gpu_mib):
            yield one.row, share


def _lowered(jobs: Sequence[Occupant], shares: Shares) -> Iterator[tuple[int, ChangedShare]]:
    """Attempts whose share is lowered, and those without one, which get the proportional share beside others.

    With weights only (`MOTLEY_LIMIT_CPUS=share`) a job of which nobody has said how many CPUs it has counts as one CPU
    per GPU, and would have less than its share beside jobs that count as theirs.
    """
    for one, amount, reverted in zip(jobs, shares.amount, shares.reverted.tolist(), strict=True):
        if one.attempt is not None and (reverted or not one.given[CPUS]):
            share = _given(one, amount, How.REVERTED) if reverted else CpuMemory(int(amount[CPUS]), 0, How.PROPORTIONAL)
            yield one.attempt.id, ChangedShare(one.attempt.job_id, frozenset(one.attempt.nodes), share)


def _given(one: Occupant, amount: Floats, how: Attempt.CpuMemory) -> CpuMemory:
    """The share as columns. Memory is limited only where the job says what it does with more: others may need it."""
    tunes_memory = one.job.sensitivity is not None and one.job.sensitivity.data is not None
    memory_mib = round(amount[MEMORY] * MIB_PER_GIB) if tunes_memory and not one.fixed[MEMORY] else 0
    return CpuMemory(0 if one.fixed[CPUS] else int(amount[CPUS]), memory_mib, how)
