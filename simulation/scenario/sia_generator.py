"""Sia's workload generator: recorded applications drawn by the GPU time of Philly's jobs."""

import numpy as np

from allocation.types import Floats
from simulation.scenario.generator_options import GeneratorOptions
from simulation.traces.trace import GangSpread, Program, TraceJob

SHARES = {"cifar10": 0.7458, "deepspeech2": 0.09275, "bert": 0.09275, "yolov3": 0.048, "imagenet": 0.0207}
"""Shares of GPU-time classes (below 1, 10, 100 and 1000 hours) of the 74,428 Philly jobs (CC-BY-4.0) that it draws
from."""

WANTED = {
    "cifar10": ((6, 2048), (8, 2048), (12, 4096), (16, 4096)),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "yolov3": ((4, 64),),
    "imagenet": ((10, 1600), (12, 3200), (14, 3200)),
}
"""GPUs and batches of its three published Philly workloads: those that scale to 50 to 80 % of the ideal."""


def draw_sia(options: GeneratorOptions, seed: int) -> tuple[list[TraceJob], Floats]:
    """Jobs, all arriving at 0 s, and inter-arrival times with mean 1."""
    of_applications, of_sizes, of_gaps = np.random.default_rng([seed, 2]).spawn(3)
    drawn = of_applications.choice(list(SHARES), size=options.jobs, p=list(SHARES.values()))
    chances = of_sizes.random(options.jobs)
    jobs = [_job(i, name, chance) for i, (name, chance) in enumerate(zip(drawn.tolist(), chances, strict=True))]
    return jobs, of_gaps.standard_exponential(options.jobs)


def _job(place: int, application: str, chance: float) -> TraceJob:
    wanted = WANTED[application]
    gpus, batch = wanted[int(chance * len(wanted))]
    program = Program(application, batch)
    return TraceJob(
        name=f"{application}-{place}", arrival_s=0, gangs=(gpus,), program=program, spread=GangSpread.UNEVEN
    )
