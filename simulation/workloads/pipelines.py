r"""Pipeline-parallel applications: a replica is a pipeline of stages, one GPU each, which takes some micro-batches.

.. math::
    T = 3\, (S - 1 + M)\, f

is the time of a step with S stages, M micro-batches of one sample and f seconds for the forward pass of one stage;
the backward pass takes twice as long. The all-reduce between replicas was recorded too, but no step waits for it: as in
Sia's simulator it is hidden behind the backward passes.

References
----------
.. [1] Jayaram Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
   section 3.4 (hybrid-parallel jobs).
.. [2] Huang et al., NeurIPS 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocation.types import Floats, Ints
from simulation.cluster import Placement
from simulation.workloads.recorded_runs import StepTimes

PASSES = 3
"""A backward pass takes as long as two forward passes."""


class Pipeline(NamedTuple):
    """How an application is cut into pipelines; a GPU type without stages does not hold the model."""

    stages: Mapping[str, int]
    """Stages, and so GPUs of a replica, by GPU type."""
    micro_batches: int
    """Micro-batches of one sample in a step of a replica."""


@dataclass(frozen=True, eq=False)
class PipelineTimes:
    """Step times of replicas of one GPU type, from recorded times of a stage; a batch is that of a replica."""

    stage_times: StepTimes
    stages: int
    micro_batches: int

    def at(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """Seconds of a step, and how many of them it waits for the all-reduce."""
        stage_s, _ = self.stage_times.at(placement, local_batch // self.micro_batches)
        return self._step_factor * stage_s, 0.0

    def of_batches(self, placement: Placement, local_batch: Ints) -> tuple[Floats, Floats]:
        """Step times of many batches, as `at`."""
        stage_s, _ = self.stage_times.of_batches(placement, local_batch // self.micro_batches)
        return self._step_factor * stage_s, np.zeros(len(local_batch))

    def most_per_gpu(self, placement: Placement) -> int:
        """Batch of a replica; 0: nothing was recorded on that placement."""
        return self.micro_batches if self.stage_times.knows(placement) else 0

    def most_on(self, replicas: int) -> int:
        """Batch of a replica, whatever their number."""
        return self.micro_batches

    @property
    def per_gpu(self) -> tuple[int, int]:
        """Smallest and largest batch of a replica: it is fixed."""
        return self.micro_batches, self.micro_batches

    @property
    def alone(self) -> float:
        """Approximate samples per second of one replica, where its pipeline is long full."""
        return self.stage_times.fastest_on(self.stages)

    @property
    def _step_factor(self) -> int:
        return PASSES * (self.stages - 1 + self.micro_batches)
