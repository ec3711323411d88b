"""The jobs of a trace as arrays, on one cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Self

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.configurations import Configurations
from allocation.problem import normaliser
from simulation.cluster import Cluster
from simulation.throughputs import Throughputs
from simulation.trace import TraceJob


@dataclass(frozen=True, eq=False)
class Jobs:
    """M jobs by arrival; K configurations of n types; jobs of one kind (M,) have the same true rate (kinds, K)."""

    names: Sequence[str]
    configurations: Configurations
    kind: Ints
    kind_rate: Floats
    arrival_s: Floats
    steps: Floats
    weight: Floats
    deadline_s: Floats
    team: Ints
    base_gpus: Floats
    base_rate: Floats

    @classmethod
    def of(cls, trace: Sequence[TraceJob], cluster: Cluster, truth: Throughputs, *, mixed_gangs: bool = False) -> Self:
        """Each gang on the fewest nodes of each type; a job's steps are its own, or those of its duration.

        Mixed gangs are on two types besides, and as fast as if all were of the slower.
        """
        gangs = {gang for job in trace for gang in job.gangs}
        configurations = Configurations.of(cluster.node_gpus, gangs, mixed=gangs if mixed_gangs else ())
        kinds = {kind: row for row, kind in enumerate(dict.fromkeys(_kind(job) for job in trace))}
        kind_rate = np.array([_rates(kind, configurations, cluster, truth) for kind in kinds])
        kind_rate = kind_rate.reshape(len(kinds), len(configurations.nodes))
        kind = np.array([kinds[_kind(job)] for job in trace], dtype=np.int64)
        base_gpus, base_rate = normaliser(kind_rate, configurations.usage, cluster.capacity)
        fastest = kind_rate.max(axis=1, initial=0)
        teams: dict[str, int] = {}
        return cls(
            names=[job.name for job in trace],
            configurations=configurations,
            kind=kind,
            kind_rate=kind_rate,
            arrival_s=np.array([job.arrival_s for job in trace], dtype=float),
            steps=np.array([_steps(job, fastest[k]) for job, k in zip(trace, kind.tolist(), strict=True)], dtype=float),
            weight=np.array([job.weight for job in trace], dtype=float),
            deadline_s=np.array([inf if job.deadline_s is None else job.deadline_s for job in trace], dtype=float),
            team=np.array([_team(job, i, teams) for i, job in enumerate(trace)], dtype=np.int64),
            base_gpus=base_gpus[kind],
            base_rate=base_rate[kind],
        )

    @property
    def rate(self) -> Floats:
        """True steps/s (M, K)."""
        return self.kind_rate[self.kind]

    def weights_of(self, rows: Ints) -> Floats:
        """The weight of each of these, as the service reckons it: a team weighs 1, split over its jobs by theirs.

        A job without a team has its own.
        """
        weight, team = self.weight[rows], np.unique(self.team[rows], return_inverse=True)[1]
        in_team = np.bincount(team, weight)[team]
        return np.where(self.team[rows] < 0, weight, weight / in_team)

    @property
    def runnable(self) -> Bools:
        """Who (M,) can run somewhere on this cluster."""
        return np.asarray((self.rate > 0).any(axis=1))


Kind = tuple[str | None, tuple[int, ...], frozenset[str] | None]


def _kind(job: TraceJob) -> Kind:
    return job.workload, job.gangs, job.gpu_types


def _rates(kind: Kind, on: Configurations, cluster: Cluster, truth: Throughputs) -> list[float]:
    workload, gangs, allowed = kind

    def rate(gpu_type: str, gpus: int, nodes: int) -> float:
        may_run = gpus in gangs and (allowed is None or gpu_type in allowed)
        return truth.rate(workload, gpu_type, gpus, nodes) if may_run else 0.0

    columns = zip(on.usage.T, on.gpus.tolist(), on.nodes.tolist(), strict=True)
    return [min(rate(cluster.gpu_types[j], gpus, nodes) for j in np.flatnonzero(used)) for used, gpus, nodes in columns]


def _steps(job: TraceJob, fastest: float) -> float:
    if job.total_steps is not None:
        return job.total_steps
    return (job.duration_s or 0) * fastest


def _team(job: TraceJob, row: int, teams: dict[str, int]) -> int:
    """A number for the team; a job without one is a team of its own."""
    return -1 - row if job.team is None else teams.setdefault(job.team, len(teams))
