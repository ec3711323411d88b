"""CPUs of running jobs: shared out by TUNE as in the service, or by OPT, the bound of any rule (Synergy)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from allocation.configurations import Configurations
from allocation.cpu_memory.opt import best_shares
from allocation.cpu_memory.sensitivity import Sensitivity, best_case_demand, sensitivity_of_curve
from allocation.cpu_memory.tune import largest_amounts, largest_demand_first, tune
from allocation.demands import Demands
from allocation.types import Bools, Floats, Ints
from simulation.traces.trace import Program

MEMORY_GIB = 1.0
"""Per GPU: traces tell nothing of memory, and each job has its share."""


class CpuRule(StrEnum):
    """How CPUs are shared out; `proportional`: each GPU has as many."""

    PROPORTIONAL = "proportional"
    TUNE = "tune"
    OPT = "opt"


@dataclass(frozen=True)
class CpuShares:
    """Speeds of jobs by the CPUs that they have, in relation to their rates, which hold with the proportional share."""

    rule: CpuRule
    cpus_per_gpu: float
    """That a node has."""
    places: bool = True
    """Whether jobs are placed by their demands, as TUNE does in the service, and not by their GPUs alone."""

    def speeds(self, programs: Sequence[Program], gpus: Ints, node_gpus: Ints) -> Floats:
        """Speed (m,) of jobs with gpus (m, N) on nodes with so many GPUs (N,); none is below 1."""
        floor = np.tile(self._floor, (len(programs), 1))
        capacity = self.capacity(node_gpus)
        jobs = [
            sensitivity_of_curve(dict(program.cpu_curve) or {1: 1.0}, self._floor, most=most)
            for program, most in zip(programs, largest_amounts(gpus, capacity), strict=True)
        ]
        base = np.array([job.at(self._floor) for job in jobs])
        found: Floats = self._throughputs(jobs, gpus, floor, capacity) / base
        return found

    def demands(
        self,
        programs: Sequence[Program],
        profile: Ints,
        possible: Bools,
        *,
        offered: Configurations,
        node_gpus: Ints,
        held: Ints,
    ) -> Demands | None:
        """Demands by which jobs of these programs are placed; None: by their GPUs alone.

        possible (P, K) configurations; profile (m,) and held (m,) of jobs, whose shares are found anew in each round.
        """
        if self.rule is not CpuRule.TUNE or not self.places:
            return None
        amount, each = np.zeros((*possible.shape, 2)), -(-offered.gpus // offered.nodes)
        for p, k in np.argwhere(possible).tolist():
            most = max(node_gpus.max() * self._floor[0] / each[k], self._floor[0]), MEMORY_GIB
            curve = dict(programs[p].cpu_curve) or {1: 1.0}
            job = sensitivity_of_curve(curve, self._floor, most=np.array(most))
            amount[p, k] = best_case_demand(job, self._floor)
        share = np.tile(self._floor, (len(node_gpus), 1))
        demands = Demands(share=share, profile=profile, amount=amount, held=np.zeros((len(profile), 2)))
        return replace(demands, held=demands.of(held))

    def capacity(self, node_gpus: Ints) -> Floats:
        """CPUs and GiB (N, 2) of nodes with so many GPUs."""
        of_nodes: Floats = node_gpus[:, None] * self._floor
        return of_nodes

    def _throughputs(self, jobs: Sequence[Sensitivity], gpus: Ints, floor: Floats, capacity: Floats) -> Floats:
        size = gpus.sum(axis=1)
        if self.rule is CpuRule.OPT:
            return best_shares(jobs, size, floor, capacity.sum(axis=0), whole=False).throughput
        demand = np.array([best_case_demand(job, self._floor) for job in jobs])
        shares = tune(gpus, floor, demand, capacity, largest_demand_first(size, demand))
        return np.array([job.at(amount) for job, amount in zip(jobs, shares.amount, strict=True)])

    @property
    def _floor(self) -> Floats:
        return np.array([self.cpus_per_gpu, MEMORY_GIB])
