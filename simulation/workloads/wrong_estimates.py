"""Wrong estimates: rates, lengths and restart times that policies are told, other than those that jobs really have."""

from dataclasses import dataclass, replace

import numpy as np

from allocation.types import Floats
from simulation.traces.trace import Trace
from simulation.workloads.jobs import Jobs

RATES, LENGTHS = 1, 2
"""Streams of random numbers: one error does not change the draw of another."""


@dataclass(frozen=True, kw_only=True)
class WrongEstimates:
    """Errors in what policies are told, drawn by seed; the truth moves the jobs.

    rate: a rate is told times a factor drawn evenly from 1 - rate to 1 + rate, one per workload and GPU type; length: a
    job's length is told times this factor or divided by it, with equal chance; restart_s: the restart time that is told
    of jobs of which none is known, None: the true one.
    """

    rate: float = 0.0
    length: float = 1.0
    restart_s: float | None = None
    seed: int = 0

    @property
    def chance(self) -> bool:
        """Whether they depend on the seed."""
        return self.rate > 0 or self.length > 1

    def declared(self, trace: Trace) -> Trace:
        """The trace with the lengths and restart times that are told."""
        longer = np.random.default_rng([self.seed, LENGTHS]).random(len(trace.jobs)) < 1 / 2
        jobs = tuple(
            replace(
                job,
                declared_length=job.declared_length * (self.length if above else 1 / self.length),
                told_restart_s=self.restart_s if job.told_restart_s is None else job.told_restart_s,
            )
            for job, above in zip(trace.jobs, longer.tolist(), strict=True)
        )
        return replace(trace, jobs=jobs)

    def rates(self, jobs: Jobs) -> Floats:
        """Steps/s (kinds, K) that are told; jobs without a workload have one by their gang sizes."""
        workloads = [one.workload or f"kind {row}" for row, one in enumerate(jobs.programs)]
        of_kind = np.unique(workloads, return_inverse=True)[1]
        on = jobs.configurations
        drawn = np.random.default_rng([self.seed, RATES]).uniform(-1, 1, (len(workloads), len(on.usage)))
        told: Floats = jobs.kind_rate * (1 + self.rate * drawn[of_kind][:, on.gpu_type])
        return told


RIGHT = WrongEstimates()
"""No errors."""
