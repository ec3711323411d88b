"""Fastest course of a job: how fast each configuration can advance it at most, whatever is decided of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.types import Bools, Floats, Ints
from simulation.cluster import Placement
from simulation.workloads.applications import Application

ROUNDED_S = 0.5
"""Seconds that the simulator may round off an epoch, as Sia's does."""
ALL_PASSES = 2
"""Passes up to which all batches per GPU are candidates; a step of more has the fewest passes that its batch allows."""


@dataclass(frozen=True, eq=False)
class FastestCourse:
    """Courses of M jobs on K configurations.

    least_s (M,): seconds of the whole job, each epoch of it in the configuration that is fastest then. speed (M, K), 0
    to 1: the most of such a second that a second in each configuration does, in any epoch.
    """

    least_s: Floats
    speed: Floats

    @classmethod
    def of_constant(cls, rate: Floats, steps: Floats) -> Self:
        """Courses of jobs at constant rates (M, K) in steps/s; a job that cannot run takes no time."""
        fastest = rate.max(axis=1, initial=0)
        able = np.where(fastest > 0, fastest, 1)
        return cls(np.where(fastest > 0, steps / able, 0), rate / able[:, None])

    @classmethod
    def of_epochs(cls, rates: Sequence[Floats], work: Sequence[Floats]) -> Self:
        """Courses of jobs by their rates (E, K) and work (E,) in each epoch."""
        least_s = np.zeros(len(rates))
        speed = np.zeros((len(rates), rates[0].shape[1] if rates else 0))
        for i, (rate, done) in enumerate(zip(rates, work, strict=True)):
            fastest = rate.max(axis=1)
            if (fastest > 0).all():
                least_s[i] = np.maximum(done / fastest - ROUNDED_S, 0).sum()
                speed[i] = (rate / fastest[:, None]).max(axis=0)
        return cls(least_s, speed)

    def subset(self, rows: Ints | Bools) -> Self:
        """The courses of some of the jobs."""
        return replace(self, least_s=self.least_s[rows], speed=self.speed[rows])


def tuned_rates(application: Application, gpu_type: str, placement: Placement) -> Floats:
    """Most progress per second (E,) in each epoch, over all batches that fit."""
    replicas = sum(placement) // application.gpus_per_replica.get(gpu_type, 1)
    local, passes = _candidates(application, gpu_type, placement, replicas)
    return rates_of(application, gpu_type, placement, local, passes)


def _candidates(application: Application, gpu_type: str, placement: Placement, replicas: int) -> tuple[Ints, Ints]:
    """Samples per replica at once, and passes before the last, of all steps that may be run."""
    limits, times = application.limits(gpu_type), application.times(gpu_type)
    if application.course.pipeline:
        return np.array([limits.most_per_gpu]), np.array([0])
    most = min(times.most_per_gpu(placement), times.most_on(replicas))
    tried: list[tuple[int, int]] = []
    for passes in range(limits.most // replicas):
        fewest = 1 if passes < ALL_PASSES else most * passes // (passes + 1)
        largest = min(most, limits.most // (replicas * (passes + 1)))
        if largest < fewest:
            break
        tried += [(local, passes) for local in range(fewest, largest + 1)]
    local, passes_before = np.array(tried, dtype=np.int64).reshape(-1, 2).T
    return local, passes_before


def rates_of(application: Application, gpu_type: str, placement: Placement, local: Ints, passes: Ints) -> Floats:
    """Most progress per second (E,) in each epoch with these batches (B,), 0 where none was recorded."""
    epochs = len(application.ends)
    if not local.size:
        return np.zeros(epochs)
    replicas = sum(placement) // application.gpus_per_replica.get(gpu_type, 1)
    step_s, averaging_s = application.times(gpu_type).of_batches(placement, local)
    iteration_s = (step_s + passes * (step_s - averaging_s)) * application.course.slowdown
    batch = replicas * local * (passes + 1)
    scale = batch / application.epochs.batches[0]
    rates = np.zeros(epochs)
    for epoch in range(epochs):
        _, _, sqr, var = application.epochs.at_batches(batch, epoch)
        worth = (var + sqr) / (var / scale + sqr)
        rates[epoch] = np.nan_to_num(worth / iteration_s).max()
    return rates
