"""The gangs, times and programs of made-up jobs, as chance has them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocation.arrays import Floats, Ints
from simulation.likeness import LIKENESSES
from simulation.recipe import Recipe

SHORTEST_S = 1.0
"""What is drawn shorter runs so long."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Jobs (n,): GPUs wanted, seconds on the reference type, programs, whether they are urgent.

    gaps (n,) are from one arrival to the next, on the mean 1; the first may come at once.
    """

    gangs: Ints
    duration_s: Floats
    workloads: Sequence[str | None]
    urgent: Sequence[bool]
    gaps: Floats


def draw_like_published(recipe: Recipe, seed: int) -> Drawn:
    """By the statistics of a cluster; each column has a chance of its own, so that no option changes another column."""
    likeness, n = LIKENESSES[recipe.like], recipe.jobs
    of_gangs, of_times, of_workloads, of_urgent, of_gaps = np.random.default_rng([seed, 0]).spawn(5)
    wanted = of_gangs.choice(likeness.gangs, size=n, p=likeness.gang_share)
    gangs = np.minimum(wanted, recipe.limit)
    return Drawn(
        gangs=gangs,
        duration_s=np.maximum(likeness.times.draw(wanted, of_times), SHORTEST_S),
        workloads=_programs(recipe, gangs, of_workloads.random(n)),
        urgent=(of_urgent.random(n) < recipe.urgent).tolist(),
        gaps=of_gaps.standard_exponential(n),
    )


def _programs(recipe: Recipe, gangs: Ints, chances: Floats) -> list[str | None]:
    """One of those that can run on so many GPUs, each as probable as the others."""
    able = {gang: [w for w in recipe.programs if recipe.rate(w, gang) > 0] for gang in set(gangs.tolist())}
    return [able[gang][int(chance * len(able[gang]))] for gang, chance in zip(gangs.tolist(), chances, strict=True)]
