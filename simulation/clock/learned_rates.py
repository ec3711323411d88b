"""Rates learned from observed steps, and estimates for other configurations from them (Sia, section 3.3)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from allocation.types import Floats, Ints
from estimation.goodput import BatchLimits, GradientNoise, best_batches, divided, goodput_of
from estimation.throughput_model import ThroughputModel, Timings, fit
from simulation.cluster import Placement
from simulation.traces.trace import Program
from simulation.workloads.applications import Application

Timed = tuple[int, int, int, float, float]
"""Nodes, GPUs, samples per GPU; seconds per step, and seconds of gradient averaging in it."""


@dataclass(eq=False)
class ObservedSteps:
    """Timed steps by GPU type and the models fitted to them, of one job or of all jobs of a workload."""

    timed: dict[str, dict[tuple[int, int, int], Timed]] = field(default_factory=lambda: defaultdict(dict))
    models: dict[str, ThroughputModel] = field(default_factory=dict)
    most_gpus: int = 0
    first_noise: GradientNoise | None = None
    """Gradient noise as first observed by the job that started last."""

    def note(self, gpu_type: str, placement: Placement, local: int, step_s: float, averaging_s: float) -> None:
        """Record a timed step; a repeated measurement is ignored."""
        key = (len(placement), sum(placement), local)
        of_type = self.timed[gpu_type]
        if key in of_type:
            return
        of_type[key] = (*key, step_s, averaging_s)
        self.models[gpu_type] = _fitted(tuple(of_type.values()))
        self.most_gpus = max(self.most_gpus, key[1])


@lru_cache(maxsize=65_536)
def _fitted(timed: tuple[Timed, ...]) -> ThroughputModel:
    nodes, gpus, local, step_s, averaging_s = (np.array(column) for column in zip(*timed, strict=True))
    return fit(Timings(nodes, gpus, local.astype(float), step_s, step_s - averaging_s, np.zeros_like(nodes)))


@dataclass(frozen=True, eq=False)
class Offer:
    """Configurations of one GPU type: their columns (k,), numbers of nodes (k,) and of GPUs (k,)."""

    gpu_type: str
    columns: Ints
    nodes: Ints
    gpus: Ints
    node: int


def believed_rates(
    seen: ObservedSteps, noise: GradientNoise, application: Application, program: Program, offers: Sequence[Offer]
) -> Floats:
    """Estimated goodput of all configurations (K,), in steps of the initial batch per second.

    A type without timed steps is scaled from the first type with a model by their rates on one GPU.
    """
    known = next(offer for offer in offers if offer.gpu_type in seen.models)
    rate = np.zeros(sum(len(offer.columns) for offer in offers))
    for offer in offers:
        source = offer if offer.gpu_type in seen.models else known
        limits = _told_limits(application, source.gpu_type, program)
        nodes = offer.nodes if source is offer else -(-offer.gpus // source.node)
        goodput = _goodput(seen.models[source.gpu_type], limits, noise, program, nodes=nodes, gpus=offer.gpus)
        faster = application.times(offer.gpu_type).alone / application.times(source.gpu_type).alone
        rate[offer.columns] = (goodput if source is offer else goodput * faster) / limits.initial
    return rate


def _told_limits(application: Application, gpu_type: str, program: Program) -> BatchLimits:
    """Largest batch of an estimate: the one that the job was submitted with."""
    limits = application.limits(gpu_type)
    most = program.batch or limits.most
    return BatchLimits(limits.initial, most, limits.most_per_gpu, limits.least_per_gpu)


def _goodput(
    model: ThroughputModel, limits: BatchLimits, noise: GradientNoise, program: Program, *, nodes: Ints, gpus: Ints
) -> Floats:
    if program.tuned:
        return best_batches(model.throughput, limits, noise, nodes=nodes, gpus=gpus).goodput
    local, passes = divided(np.full(len(gpus), float(limits.most)), limits, gpus)
    return goodput_of(model.throughput, limits, noise, local, passes, nodes=nodes, gpus=gpus)
