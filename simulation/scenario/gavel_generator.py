"""Gavel's job generator, reproduced draw by draw: the same random streams in the same order."""

from math import log
from random import Random

import numpy as np

from simulation.scenario.drawing import DrawnJobs
from simulation.scenario.generator_options import GeneratorOptions

BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
WORKLOADS = [f"{model} (batch size {batch})" for model, batches in BATCHES.items() for batch in batches]
WORKLOADS += ["A3C", "CycleGAN"]
"""Workloads in the order of Gavel's table."""

DISTRIBUTED = ("ResNet", "Transformer", "LM")
"""Prefixes of the workloads that run on several GPUs."""

JOBS_SEED, GAPS_SEED = 2, 3
"""Offsets that Gavel adds to the seed of a run."""


def draw_gavel(options: GeneratorOptions, seed: int) -> DrawnJobs:
    """Draw jobs as Gavel's `utils.generate_job` (stanford-futuredata/gavel at c4fa400)."""
    chance = Random(seed + JOBS_SEED)  # noqa: S311  # no secret
    of_gaps = Random(seed + GAPS_SEED)  # noqa: S311  # no secret
    drawn = [_job(chance, urgent=options.urgent) for _ in range(options.jobs)]
    gaps = [0.0] + [-log(1 - of_gaps.random()) for _ in range(options.jobs - 1)]
    return DrawnJobs(
        gangs=np.minimum([gang for gang, *_ in drawn], options.limit),
        duration_s=np.array([duration_s for _, duration_s, *_ in drawn]),
        workloads=[workload for _, _, workload, _ in drawn],
        urgent=[urgent for *_, urgent in drawn],
        gaps=np.array(gaps),
    )


def _job(chance: Random, *, urgent: float) -> tuple[int, float, str, bool]:
    """Gang size, duration in seconds, workload, and urgency, which is drawn only if some jobs are urgent."""
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
