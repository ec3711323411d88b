"""CPUs and memory that jobs would have where they start, before they are placed: by profile and configuration. Pure.

The node that counts is that of each GPU type with the most for a GPU: a job prefers the nodes that feed it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from allocation.configurations import Configurations
from allocation.cpu_memory.sensitivity import Storage, best_case_demand, sensitivity_of_curve
from allocation.cpu_memory.tune import UNITS, proportional_shares
from allocation.demands import MIB_PER_GIB, ROUNDING, Demands
from allocation.types import Floats, Ints
from scheduler_app.round.inputs import AttemptRow, DeclaredSensitivity, Gang, InputRows, JobRow, NodeRow

MIB = 2**20
KNOWN_BEST = 10_000
"""Best-case amounts that are remembered from round to round."""
LEAST = np.array([1.0, 0.0])
"""CPUs and GiB per GPU that are given at least: attempts have whole CPUs, and 0 is no choice."""


class Profile(NamedTuple):
    """What the demand of a job depends on; jobs of one profile have one demand."""

    declared: DeclaredSensitivity | None
    team_id: int
    workload: str
    """Team and workload of the measured curves; 0 and "" where there are none, or the job declares its own."""
    cpus_per_gpu: int
    memory_per_gpu_mib: int

    @property
    def fixed(self) -> Floats:
        """CPUs and GiB (2,) that the job asks for; 0: none."""
        return np.array([self.cpus_per_gpu, self.memory_per_gpu_mib / MIB_PER_GIB])


def demands_of(
    rows: InputRows,
    jobs: Sequence[JobRow],
    attempts: Sequence[AttemptRow | None],
    offered: Configurations,
    rate: Floats,
) -> Demands | None:
    """Demands of jobs with these attempts and rates (m, K); None where CPUs and memory are not tuned."""
    if rows.cpu_curves is None:
        return None
    measured = {(gang.team_id, gang.workload) for gang in rows.cpu_curves}
    place, profile = dict[Profile, int](), np.zeros(len(jobs), dtype=np.int64)
    for i, job in enumerate(jobs):
        profile[i] = place.setdefault(_profile_of(job, measured), len(place))
    possible = np.zeros((max(len(place), 1), len(offered.nodes)), dtype=np.bool_)
    np.logical_or.at(possible, profile, rate > 0)
    room, amount = _Room.of(rows), np.zeros((*possible.shape, 2))
    for one, p in place.items():
        for k in np.flatnonzero(possible[p]).tolist():
            amount[p, k] = room.amount(one, offered, k)
    held = np.array([_held(job, attempt) for job, attempt in zip(jobs, attempts, strict=True)]).reshape(-1, 2)
    return Demands(share=room.share, profile=profile, amount=amount, held=held)


def _profile_of(job: JobRow, measured: set[tuple[int, str]]) -> Profile:
    knows = job.sensitivity is None and (job.team_id, job.workload) in measured
    whose = (job.team_id, job.workload) if knows else (0, "")
    return Profile(job.sensitivity, *whose, job.cpus_per_gpu, job.memory_per_gpu_mib)


@dataclass(frozen=True, eq=False)
class _Room:
    """The nodes on which demands are to be met."""

    rows: InputRows
    share: Floats  # (N, 2)
    capacity: Floats  # (N, 2)
    gpus: Ints  # (N,)
    of_type: Mapping[int, Sequence[int]]
    """GPU type → its nodes in service, the one with the largest share first."""

    @classmethod
    def of(cls, rows: InputRows) -> Self:
        capacity, gpus = capacity_of_nodes(rows), gpus_of_nodes(rows)
        share = np.maximum(in_units(proportional_shares(capacity, gpus), units_of(rows)), least_amounts(rows))
        of_type = defaultdict[int, list[int]](list)
        for v in np.lexsort((-share[:, 1], -share[:, 0])).tolist():
            if rows.nodes[v].in_service:
                of_type[rows.nodes[v].gpu_type_id].append(v)
        return cls(rows, share, capacity, gpus, of_type)

    def amount(self, one: Profile, offered: Configurations, k: int) -> Floats:
        """Amount (2,) per GPU in a configuration; 0: the share of the node."""
        gpus, nodes = int(offered.gpus[k]), int(offered.nodes[k])
        each, kind = -(-gpus // nodes), self.rows.types[int(offered.usage[:, k].argmax())].id
        measured = (self.rows.cpu_curves or {}).get(Gang(one.team_id, one.workload, kind, gpus, nodes))
        known = one.declared or (measured.sensitivity if measured else None)
        richest = next((v for v in self.of_type.get(kind, ()) if self.gpus[v] >= each), None)
        if known is None or richest is None:
            return one.fixed
        floor = np.where(one.fixed > 0, one.fixed, self.share[richest])
        most = np.where(one.fixed > 0, floor, np.floor(self.capacity[richest] / each * UNITS) / UNITS)
        best = best_amount(known, floor, most, storage_of([self.rows.nodes[richest]], each))
        return np.where(one.fixed > 0, floor, best)


def _held(job: JobRow, attempt: AttemptRow | None) -> tuple[float, float]:
    """CPUs and GiB per GPU that a job has, or was told that it has and may have again; 0: nobody has said."""
    if attempt is None:
        return job.cpus_per_gpu, job.memory_per_gpu_mib / MIB_PER_GIB
    cpus = job.cpus_per_gpu or max(attempt.cpus_per_gpu, attempt.told_cpus_per_gpu)
    memory_mib = job.memory_per_gpu_mib or max(attempt.memory_per_gpu_mib, attempt.told_memory_per_gpu_mib)
    return cpus, memory_mib / MIB_PER_GIB


def capacity_of_nodes(rows: InputRows) -> Floats:
    """CPUs and GiB (N, 2) of each node that are not used outside Motley."""
    left = [(node.cpus - node.foreign_cpus, node.memory_mib - node.foreign_memory_mib) for node in rows.nodes]
    capacity: Floats = np.maximum(np.array(left, dtype=float).reshape(-1, 2) / UNITS, 0)
    return capacity


def gpus_of_nodes(rows: InputRows) -> Ints:
    """GPUs (N,) of each node that are not used outside Motley."""
    count = Counter(gpu.node_id for gpu in rows.gpus)
    return np.array([max(count[node.id] - node.foreign_gpus, 0) for node in rows.nodes], dtype=np.int64)


def least_amounts(rows: InputRows) -> Floats:
    """CPUs and GiB (N, 2) per GPU that are given at least on each node, in whole cores where these are booked."""
    booked = [(node.least_cpus_per_gpu, node.least_memory_per_gpu_mib / MIB_PER_GIB) for node in rows.nodes]
    least = np.maximum(np.array(booked, dtype=float).reshape(-1, 2), LEAST)
    return in_units(least, units_of(rows), up=True)


def units_of(rows: InputRows) -> Floats:
    """CPUs and GiB (N, 2) of which shares on each node are multiples: a CPU, or a core where CPUs are booked."""
    return np.array([(node.cpus_per_core, 1 / MIB_PER_GIB) for node in rows.nodes], dtype=float).reshape(-1, 2)


def in_units(amount: Floats, unit: Floats, *, up: bool = False) -> Floats:
    """The amounts rounded down, or up, to multiples of these units."""
    whole: Floats = (np.ceil(amount / unit - ROUNDING) if up else np.floor(amount / unit + ROUNDING)) * unit
    return whole


def storage_of(nodes: Iterable[NodeRow], gpus: int) -> Storage | None:
    """The slowest storage of these nodes, for a job with so many GPUs on each; None: one is not known."""
    bandwidth = min(node.storage_mib_s or 0 for node in nodes)
    return Storage(bandwidth * MIB, gpus) if bandwidth else None


def best_amount(known: DeclaredSensitivity, floor: Floats, most: Floats, storage: Storage | None) -> Floats:
    """Best-case demand (2,) in whole CPUs and MiB."""
    return np.array(_best_case(known, tuple(floor.tolist()), tuple(most.tolist()), storage))


@lru_cache(KNOWN_BEST)
def _best_case(
    known: DeclaredSensitivity, floor: tuple[float, ...], most: tuple[float, ...], storage: Storage | None
) -> tuple[float, ...]:
    """As `best_amount`; thousands of jobs declare the same."""
    least = np.array(floor)
    sensitivity = sensitivity_of_curve(dict(known.curve), least, known.data, storage, most=np.array(most))
    best = np.minimum(np.ceil(best_case_demand(sensitivity, least) * UNITS) / UNITS, np.maximum(most, least))
    return tuple(best.tolist())
