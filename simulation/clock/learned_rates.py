"""Rates learned from observed steps, and estimates for other configurations from them (Sia, section 3.3)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from allocation.types import Floats, Ints
from estimation.goodput import BatchLimits, GradientNoise, best_batches, divided, goodput_of
from estimation.throughput_model import ThroughputModel, Timings, fit
from simulation.traces.trace import Program
from simulation.workloads.applications import Application

Timed = tuple[int, int, int, float, float]
"""Nodes, replicas, samples per replica; seconds per step, and seconds of gradient averaging in it."""


@dataclass(eq=False)
class ObservedSteps:
    """Timed steps by GPU type and the models fitted to them, of one job or of all jobs of a workload."""

    timed: dict[str, dict[tuple[int, int, int], Timed]] = field(default_factory=lambda: defaultdict(dict))
    models: dict[str, ThroughputModel] = field(default_factory=dict)
    most_replicas: int = 0
    first_noise: GradientNoise | None = None
    """Gradient noise as first observed by the job that started last."""

    def note(self, gpu_type: str, size: tuple[int, int], local: int, step_s: float, averaging_s: float) -> None:
        """Record a timed step on so many nodes and with so many replicas; a repeated measurement is ignored."""
        key = (*size, local)
        of_type = self.timed[gpu_type]
        if key in of_type:
            return
        of_type[key] = (*key, step_s, averaging_s)
        self.models[gpu_type] = _fitted(tuple(of_type.values()))
        self.most_replicas = max(self.most_replicas, key[1])


@lru_cache(maxsize=65_536)
def _fitted(timed: tuple[Timed, ...]) -> ThroughputModel:
    nodes, replicas, local, step_s, averaging_s = (np.array(column) for column in zip(*timed, strict=True))
    return fit(Timings(nodes, replicas, local.astype(float), step_s, step_s - averaging_s, np.zeros_like(nodes)))


@dataclass(frozen=True, eq=False)
class ProfiledRate:
    """Configurations of one GPU type: their columns (k,), numbers of nodes (k,) and of replicas (k,)."""

    gpu_type: str
    columns: Ints
    nodes: Ints
    replicas: Ints
    replicas_per_node: float
    """Below 1: a replica spans nodes."""


def believed_rates(
    seen: ObservedSteps,
    noise: GradientNoise,
    application: Application,
    program: Program,
    offers: Sequence[ProfiledRate],
    *,
    columns: int,
) -> Floats:
    """Estimated goodput of all configurations (columns,), in steps of the initial batch per second; 0: not offered.

    A type without timed steps is scaled from the first type with a model, by their rates with one replica and for as
    many replicas.
    """
    known = next(offer for offer in offers if offer.gpu_type in seen.models)
    rate = np.zeros(columns)
    for offer in offers:
        source = offer if offer.gpu_type in seen.models else known
        limits = _told_limits(application, source.gpu_type, program)
        spanned = np.ceil(offer.replicas / source.replicas_per_node).astype(np.int64)
        nodes = offer.nodes if source is offer else spanned
        model, of_pipelines = seen.models[source.gpu_type], application.course.pipeline is not None
        goodput = (
            _goodput_of_pipelines(model, limits, noise, nodes=nodes, replicas=offer.replicas)
            if of_pipelines
            else _goodput(model, limits, noise, program, nodes=nodes, replicas=offer.replicas)
        )
        faster = application.times(offer.gpu_type).alone / application.times(source.gpu_type).alone
        rate[offer.columns] = (goodput if source is offer else goodput * faster) / limits.initial
    return rate


def _told_limits(application: Application, gpu_type: str, program: Program) -> BatchLimits:
    """Largest batch of an estimate: the one that the job was submitted with."""
    limits = application.limits(gpu_type)
    most = program.batch or limits.most
    return BatchLimits(limits.initial, most, limits.most_per_gpu, limits.least_per_gpu)


def _goodput(
    model: ThroughputModel, limits: BatchLimits, noise: GradientNoise, program: Program, *, nodes: Ints, replicas: Ints
) -> Floats:
    if program.tuned:
        return best_batches(model.throughput, limits, noise, nodes=nodes, gpus=replicas).goodput
    local, passes = divided(np.full(len(replicas), float(limits.most)), limits, replicas)
    return goodput_of(model.throughput, limits, noise, local, passes, nodes=nodes, gpus=replicas)


def _goodput_of_pipelines(
    model: ThroughputModel, limits: BatchLimits, noise: GradientNoise, *, nodes: Ints, replicas: Ints
) -> Floats:
    """Goodput with the one batch that each replica takes; 0 where that is more than the job may have in all."""
    local, passes = np.full(len(replicas), limits.most_per_gpu), np.zeros(len(replicas), dtype=np.int64)
    goodput = goodput_of(model.throughput, limits, noise, local, passes, nodes=nodes, gpus=replicas)
    return np.where(replicas * local <= limits.most, goodput, 0)
