"""Training with batches that are written down, so that what happens depends on no fit.

Sia's simulator chooses a batch after every epoch and every round, by a fit that ends before it has converged: where,
and so which batch, depends on the processor. Its recorded runs tell the batch of each round of the single jobs, and the
last one of those on a fixed placement. `recorded_batches.json` has them all, as [samples per GPU, passes before the
last, how many times in a row]: those with which the recorded progress and seconds come out.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from allocation.types import Floats, Ints
from estimation.goodput import BatchLimits, goodput_of
from simulation.clock.training import DUST, Training

Batch = tuple[int, int]
"""Samples per GPU at once, and passes before the last."""


class Began(NamedTuple):
    """How a round began: the batch, the epoch and the progress then, and for how long the job is restored first."""

    batch: Batch
    epoch: int
    progress: float
    restored_s: float


@dataclass(eq=False)
class ToldTraining(Training):
    """Training of one job with told batches in place of its own choice, each compared with that choice."""

    told: Sequence[Batch] = ()
    round_s: float = 60.0
    shortfalls: list[float] = field(default_factory=list)
    """By what part each told batch is believed to be worse than our own choice."""
    began: Began | None = None
    _taken: int = 0

    def batch_for(self, i: int, k: int) -> Batch:
        """The next told batch; until the job has run on that type it must be ours."""
        ours, told = super().batch_for(i, k), self.told[self._taken]
        self._taken += 1
        if self._jobs[i].noise is None or self._types[k] not in self._jobs[i].seen.models:
            assert told == ours
        else:
            self.shortfalls.append(1 - self._goodput_believed(i, k, told) / self._goodput_believed(i, k, ours))
        return told

    def _goodput_believed(self, i: int, k: int, batch: Batch) -> float:
        job, gpu_type, placement = self._jobs[i], self._types[k], self.jobs.placements[k]
        limits = job.application.limits(gpu_type)
        anything = BatchLimits(limits.initial, limits.most, most_per_gpu=batch[0])
        local, passes, nodes, gpus = (np.array([x]) for x in (*batch, len(placement), sum(placement)))
        assert job.noise is not None
        throughput = job.seen.models[gpu_type].throughput
        return float(goodput_of(throughput, anything, job.noise, local, passes, nodes=nodes, gpus=gpus)[0])

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        job, progress = self._jobs[0], float(self.jobs.steps[0] - left[0])
        epoch = int(np.searchsorted(job.application.ends, progress + DUST, side="right"))
        self.began = Began((job.local, job.passes), epoch, progress, self.round_s - float(seconds[0]))
        return super().run(rows, configurations, left, seconds, mates)

    @property
    def all_taken(self) -> bool:
        """Whether as many batches were chosen as are told."""
        return self._taken == len(self.told)


def told_batches() -> dict[str, Any]:
    """Of `single` jobs by application, and of those on a `fixed` placement as the recorded runs are ordered."""
    return json.loads((Path(__file__).parent / "recorded_batches.json").read_text())


def in_full(rows: Iterable[Sequence[int]]) -> list[Batch]:
    """The batches of [samples per GPU, passes, times in a row]."""
    return [(local, passes) for local, passes, times in rows for _ in range(times)]
