"""CPUs of running jobs: shared out by TUNE as in the service, or by OPT, the bound of any rule (Synergy)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from allocation.cpu_memory.opt import best_shares
from allocation.cpu_memory.sensitivity import Sensitivity, best_case_demand, sensitivity_of_curve
from allocation.cpu_memory.tune import largest_amounts, largest_demand_first, tune
from allocation.types import Floats, Ints
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

    def speeds(self, programs: Sequence[Program], gpus: Ints, node_gpus: Ints) -> Floats:
        """Speed (m,) of jobs with gpus (m, N) on nodes with so many GPUs (N,); none is below 1."""
        floor = np.tile(self._floor, (len(programs), 1))
        capacity = node_gpus[:, None] * self._floor
        jobs = [
            sensitivity_of_curve(dict(program.cpu_curve) or {1: 1.0}, self._floor, most=most)
            for program, most in zip(programs, largest_amounts(gpus, capacity), strict=True)
        ]
        base = np.array([job.at(self._floor) for job in jobs])
        found: Floats = self._throughputs(jobs, gpus, floor, capacity) / base
        return found

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
