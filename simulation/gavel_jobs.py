"""Gavel's own generator of jobs, number by number: its streams of chance, and what it draws of each in which order."""

from math import log
from random import Random

import numpy as np

from simulation.drawing import Drawn
from simulation.recipe import Recipe

BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
WORKLOADS = [f"{model} (batch size {batch})" for model, batches in BATCHES.items() for batch in batches]
WORKLOADS += ["A3C", "CycleGAN"]
"""In the order of its table."""

DISTRIBUTED = ("ResNet", "Transformer", "LM")
"""Which run on several GPUs."""

JOBS_SEED, GAPS_SEED = 2, 3
"""What Gavel adds to the seed of a run."""


def draw_gavel(recipe: Recipe, seed: int) -> Drawn:
    """As `utils.generate_job` does: section 5.3 of the notes on its formats, stanford-futuredata/gavel at c4fa400."""
    chance = Random(seed + JOBS_SEED)  # noqa: S311  # no secret
    of_gaps = Random(seed + GAPS_SEED)  # noqa: S311  # no secret
    drawn = [_job(chance, urgent=recipe.urgent) for _ in range(recipe.jobs)]
    gaps = [0.0] + [-log(1 - of_gaps.random()) for _ in range(recipe.jobs - 1)]
    return Drawn(
        gangs=np.minimum([gang for gang, *_ in drawn], recipe.limit),
        duration_s=np.array([duration_s for _, duration_s, *_ in drawn]),
        workloads=[workload for _, _, workload, _ in drawn],
        urgent=[urgent for *_, urgent in drawn],
        gaps=np.array(gaps),
    )


def _job(chance: Random, *, urgent: float) -> tuple[int, float, str, bool]:
    """A gang, its duration in seconds, its workload, and whether it is urgent: drawn only where some are to be."""
    gang = _gang(chance.uniform(0, 1))
    long = chance.random() >= 0.8
    duration_s = 60 * 10 ** (chance.uniform(3, 4) if long else chance.uniform(1.5, 3))
    workload = chance.choice(WORKLOADS)
    while gang > 1 and not workload.startswith(DISTRIBUTED):
        workload = chance.choice(WORKLOADS)
    return gang, duration_s, workload, urgent > 0 and chance.uniform(0, 1) <= urgent


def _gang(chance: float) -> int:
    if chance < 0.7:
        return 1
    if chance <= 0.8:
        return 2
    return 4 if chance <= 0.95 else 8
