"""The jobs of a trace as arrays, on one cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import NamedTuple, Self

import numpy as np

from allocation.configurations import Configurations
from allocation.problem import LEAST_WEIGHT, normaliser
from allocation.quotas import Quotas
from allocation.types import Bools, Floats, Ints
from estimation.durations import JobTraits
from simulation.cluster import Cluster, Placement
from simulation.traces.trace import GangSpread, Program, TraceJob
from simulation.workloads.rate_sources import RateSource

RateBeside = Callable[[Program, Program, str, Placement], float]
"""Rate of the first of two jobs that share GPUs of a type, in steps/s."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """M jobs by arrival; K configurations of n types; jobs of one kind (M,) have the same true rate (kinds, K).

    beside_rate (kinds, kinds, K) is that of a job of the first kind on the same GPUs as one of the second, 0: they
    cannot be together; it is empty where no jobs may share.

    gpus_per_replica (kinds, n) are the GPUs of each type that one replica of a kind takes.
    team_names are those of the teams by their number. allowed (M,): quotas on GPU types let the job run.
    programs are those of the kinds, placements those of the configurations; restart_s (M,) is what a restart takes,
    and told_restart_s (M,) what policies take it for; declared_steps (M,) are those that its owner declares, inf: none.
    team (M,) is negative for a job without a team; team_weight (M,) is that of its team; array (M,) is the index of its
    array, -1: it is of none.
    """

    names: Sequence[str]
    configurations: Configurations
    kind: Ints
    kind_rate: Floats
    beside_rate: Floats
    arrival_s: Floats
    steps: Floats
    declared_steps: Floats
    weight: Floats
    deadline_s: Floats
    team: Ints
    array: Ints
    team_weight: Floats
    base_gpus: Floats
    base_rate: Floats
    restart_s: Floats
    told_restart_s: Floats
    gpus_per_replica: Ints
    programs: Sequence[Program]
    placements: Sequence[Placement]
    team_names: Sequence[str] = ()
    allowed: Bools | None = None
    """None: all are."""

    @classmethod
    def of(
        cls,
        trace: Sequence[TraceJob],
        cluster: Cluster,
        truth: RateSource,
        *,
        restart_s: float = 0.0,
        mixed_gangs: bool = False,
        reference: str | None = None,
        beside: RateBeside | None = None,
    ) -> Self:
        """Arrays of a trace's jobs; each gang is on the fewest nodes of each type.

        A duration holds on GPUs of the reference type, as many as run the job fastest here; if nothing is known of the
        job there, on these. Mixed gangs are on two types besides, and as fast as if all were of the slower. With rates
        beside others, two jobs may share a gang of one type.
        """
        gangs = {gang for job in trace for gang in job.gangs if job.spread is not GangSpread.UNEVEN}
        uneven = {gang for job in trace for gang in job.gangs if job.spread is GangSpread.UNEVEN}
        mixed = gangs if mixed_gangs else ()
        configurations = Configurations.of(cluster.node_gpus, gangs, uneven=uneven, mixed=mixed)
        kinds = {kind: row for row, kind in enumerate(dict.fromkeys(_kind(job) for job in trace))}
        kind_rate = np.array([_rates(kind, configurations, cluster, truth) for kind in kinds])
        kind_rate = kind_rate.reshape(len(kinds), len(configurations.nodes))
        kind = np.array([kinds[_kind(job)] for job in trace], dtype=np.int64)
        units = [[max(one.gpus_of_replica(gpu_type), 1) for gpu_type in cluster.gpu_types] for one in kinds]
        gpus_per_replica = np.array(units, dtype=np.int64).reshape(len(kinds), len(cluster.gpu_types))
        base_gpus, base_rate = normaliser(kind_rate, configurations.usage, cluster.capacity, gpus_per_replica)
        placements = cluster.placements(configurations)
        usual = [_usual(one, rate, placements, truth, reference) for one, rate in zip(kinds, kind_rate, strict=True)]
        steps = np.array([_steps(job, usual[k]) for job, k in zip(trace, kind.tolist(), strict=True)], dtype=float)
        teams: dict[str, int] = {}
        arrays = {name: index for index, name in enumerate(dict.fromkeys(job.array for job in trace if job.array))}
        return cls(
            names=[job.name for job in trace],
            configurations=configurations,
            kind=kind,
            kind_rate=kind_rate,
            beside_rate=_beside_rates(list(kinds), kind_rate, configurations, cluster, beside),
            arrival_s=np.array([job.arrival_s for job in trace], dtype=float),
            steps=steps,
            declared_steps=steps * np.array([job.declared_length for job in trace]),
            weight=np.array([job.weight for job in trace], dtype=float),
            deadline_s=np.array([inf if job.deadline_s is None else job.deadline_s for job in trace], dtype=float),
            team=np.array([_team(job, i, teams) for i, job in enumerate(trace)], dtype=np.int64),
            array=np.array([arrays[job.array] if job.array else -1 for job in trace], dtype=np.int64),
            team_weight=np.array([job.team_weight for job in trace], dtype=float),
            base_gpus=base_gpus[kind],
            base_rate=base_rate[kind],
            restart_s=np.array([_or(job.restart_s, restart_s) for job in trace]),
            told_restart_s=np.array([_or(job.told_restart_s, restart_s) for job in trace]),
            gpus_per_replica=gpus_per_replica,
            programs=[kind.program for kind in kinds],
            placements=placements,
            team_names=tuple(teams),
        )

    @property
    def rate(self) -> Floats:
        """True steps/s (M, K)."""
        return self.kind_rate[self.kind]

    @cached_property
    def kept_rate(self) -> Floats:
        """Fraction of its rate (kinds, kinds, K) that a job of the first kind keeps beside one of the second."""
        alone = np.broadcast_to(self.kind_rate[: len(self.beside_rate), None], self.beside_rate.shape)
        kept = np.divide(self.beside_rate, alone, out=np.zeros_like(self.beside_rate), where=alone > 0)
        return np.minimum(kept, 1)

    def traits(self, row: int) -> JobTraits:
        """What tells of its duration: a trace has no owner, and no name that recurs, but a team and a workload."""
        workload = self.programs[int(self.kind[row])].workload or ""
        return JobTraits(int(self.team[row]), workload, int(self.base_gpus[row]))

    def weights_of(self, rows: Ints, part: Floats | float = 1.0) -> Floats:
        """Weights of these rows as in the service: the part of the team's weight, split over its jobs by theirs.

        A job without a team keeps its own weight.
        """
        weight, team = self.weight[rows], np.maximum(self.team[rows], -1) + 1
        in_team = np.bincount(team, weight)[team]
        split = np.maximum(self.team_weight[rows] * part * weight / in_team, LEAST_WEIGHT)
        return np.where(self.team[rows] < 0, weight, split)

    @cached_property
    def runnable(self) -> Bools:
        """Jobs (M,) that can run somewhere on this cluster, and may."""
        able = np.asarray((self.kind_rate > 0).any(axis=1))[self.kind]
        return able if self.allowed is None else able & self.allowed

    @property
    def first_arrival_s(self) -> float:
        """When the first job arrives that can run; 0: none can."""
        return float(self.arrival_s[self.runnable].min()) if self.runnable.any() else 0.0

    def within(self, quotas: Quotas, capacity: Ints) -> Self:
        """The same jobs, of which those may not run that quotas never allow."""
        never = quotas.never_allowed(self.configurations.usage, capacity)
        return replace(self, allowed=np.asarray(((self.rate > 0) & ~never).any(axis=1)))


class _Kind(NamedTuple):
    program: Program
    gangs: tuple[int, ...]
    spread: GangSpread
    gpu_types: frozenset[str] | None
    gpus_per_replica: int | tuple[tuple[str, int], ...]
    replicas: tuple[int, ...]

    def gpus_of_replica(self, gpu_type: str) -> int:
        """GPUs of that type that one replica takes; 0: it cannot be there."""
        if isinstance(self.gpus_per_replica, int):
            return self.gpus_per_replica
        return dict(self.gpus_per_replica).get(gpu_type, 0) if self.gpus_per_replica else 1


def _kind(job: TraceJob) -> _Kind:
    size = job.gpus_per_replica
    of_types = size if isinstance(size, int) else tuple(size.items())
    return _Kind(job.program, job.gangs, job.spread, job.gpu_types, of_types, job.replicas)


def _rates(kind: _Kind, on: Configurations, cluster: Cluster, truth: RateSource) -> list[float]:
    columns = zip(on.usage.T, cluster.placements(on), on.uneven.tolist(), strict=True)
    return [
        min(_rate(kind, cluster, truth, j, placement) for j in np.flatnonzero(used).tolist())
        if uneven == (kind.spread is GangSpread.UNEVEN) and _in_whole_replicas(kind, cluster, used)
        else 0.0
        for used, placement, uneven in columns
    ]


def _rate(kind: _Kind, cluster: Cluster, truth: RateSource, gpu_type: int, placement: Placement) -> float:
    """Rate as if the whole gang were on that type."""
    if not _allowed(kind, cluster, gpu_type, placement):
        return 0.0
    return truth.rate(kind.program, cluster.gpu_types[gpu_type], placement)


def _beside_rates(
    kinds: Sequence["_Kind"], alone: Floats, on: Configurations, cluster: Cluster, beside: RateBeside | None
) -> Floats:
    """Rates of each kind beside each other kind; both are 0 if one of the two cannot run."""
    if beside is None:
        return np.zeros((0, 0, len(on.nodes)))
    rates, placements = np.zeros((len(kinds), len(kinds), len(on.nodes))), cluster.placements(on)
    for k in np.flatnonzero((on.usage > 0).sum(axis=0) == 1).tolist():
        gpu_type, able = cluster.gpu_types[int(on.usage[:, k].argmax())], np.flatnonzero(alone[:, k]).tolist()
        for a, b in product(able, able):
            rates[a, b, k] = beside(kinds[a].program, kinds[b].program, gpu_type, placements[k])
    return rates * (rates.transpose(1, 0, 2) > 0)


def _allowed(kind: _Kind, cluster: Cluster, gpu_type: int, placement: Placement) -> bool:
    on_type = kind.gpu_types is None or cluster.gpu_types[gpu_type] in kind.gpu_types
    whole = kind.spread is not GangSpread.FULL or cluster.fills(gpu_type, placement)
    return sum(placement) in kind.gangs and on_type and whole


def _in_whole_replicas(kind: _Kind, cluster: Cluster, used: Ints) -> bool:
    """Whether GPUs of each type (n,) are whole replicas, as many as the job may run as."""
    on = [
        (gpus, kind.gpus_of_replica(name)) for name, gpus in zip(cluster.gpu_types, used.tolist(), strict=True) if gpus
    ]
    if any(unit == 0 or gpus % unit for gpus, unit in on):
        return False
    return not kind.replicas or sum(gpus // unit for gpus, unit in on) in kind.replicas


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _usual(
    kind: _Kind, rate: Floats, placements: Sequence[Placement], truth: RateSource, reference: str | None
) -> float:
    """Rate in steps/s at which durations were measured."""
    if not (rate > 0).any():
        return 0.0
    fastest = int(rate.argmax())
    there = 0.0 if reference is None else truth.rate(kind.program, reference, placements[fastest])
    return there or float(rate[fastest])


def _steps(job: TraceJob, usual: float) -> float:
    return (job.duration_s or 0) * usual if job.total_steps is None else job.total_steps


def _team(job: TraceJob, row: int, teams: dict[str, int]) -> int:
    """Number of the team; a job without a team forms a team of its own."""
    return -1 - row if job.team is None else teams.setdefault(job.team, len(teams))
