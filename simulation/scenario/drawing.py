"""Random draws of generated jobs: gang sizes, durations, programs, arrival gaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocation.types import Floats, Ints
from simulation.scenario.generator_options import GeneratorOptions
from simulation.scenario.published_statistics import PUBLISHED

SHORTEST_S = 1.0
"""Shortest duration of a generated job, in seconds."""


@dataclass(frozen=True, eq=False)
class DrawnJobs:
    """Generated jobs (n,): gang sizes, seconds on the reference type, programs, whether they are urgent.

    gaps (n,) are inter-arrival times with mean 1; the first may be 0.
    """

    gangs: Ints
    duration_s: Floats
    workloads: Sequence[str | None]
    urgent: Sequence[bool]
    gaps: Floats


def draw_from_statistics(options: GeneratorOptions, seed: int) -> DrawnJobs:
    """Draw jobs by a cluster's published statistics; each column has a random stream of its own."""
    likeness, n = PUBLISHED[options.like], options.jobs
    of_gangs, of_times, of_workloads, of_urgent, of_gaps = np.random.default_rng([seed, 0]).spawn(5)
    wanted = of_gangs.choice(likeness.gangs, size=n, p=likeness.gang_share)
    gangs = np.minimum(wanted, options.limit)
    return DrawnJobs(
        gangs=gangs,
        duration_s=np.maximum(likeness.times.draw(wanted, of_times), SHORTEST_S),
        workloads=_programs(options, gangs, of_workloads.random(n)),
        urgent=(of_urgent.random(n) < options.urgent).tolist(),
        gaps=of_gaps.standard_exponential(n),
    )


def _programs(options: GeneratorOptions, gangs: Ints, chances: Floats) -> list[str | None]:
    """A program for each job, uniformly among those that can run on so many GPUs."""
    able = {gang: [w for w in options.programs if options.rate(w, gang) > 0] for gang in set(gangs.tolist())}
    return [able[gang][int(chance * len(able[gang]))] for gang, chance in zip(gangs.tolist(), chances, strict=True)]
