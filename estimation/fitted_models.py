"""The model of a workload's step times on each GPU type where they were timed well enough; fitted once."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import exp, log
from threading import Lock
from typing import NamedTuple

import numpy as np

from estimation.goodput import BatchLimits
from estimation.profile import Knowledge, Place
from estimation.scaling import Machines
from estimation.throughput_model import ThroughputModel, Timings, fit
from estimation.types import Floats, Ints

BATCHES = 2
"""Timed on one node with so many batches per GPU, or more, a type is fitted: fewer do not tell computing apart."""
GRAIN = 0.02
"""Rates are rounded to steps of 2 %: a mean that moves by less with each report asks for no new fit."""


class Timed(NamedTuple):
    """A step that was timed: samples per GPU at once, and seconds."""

    nodes: int
    gpus: int
    local_batch: float
    passes: int
    seconds: float


Models = Mapping[int, ThroughputModel]
"""GPU type → the model fitted to it."""

MOST_KEPT = 16_384
FITS_AT_ONCE = 64
"""A fit takes some ten milliseconds: after a restart thousands of workloads are fitted over several rounds."""


class Fits:
    """At most so many new fits; those that are known already are free. Threads may share what is known."""

    _known: OrderedDict[tuple[Timed, ...], ThroughputModel] = OrderedDict()
    _lock = Lock()

    def __init__(self, most_new: int = FITS_AT_ONCE) -> None:
        self.left = most_new

    def of(self, timed: tuple[Timed, ...]) -> ThroughputModel | None:
        """The model fitted to these steps; None if that would be one fit too many."""
        with self._lock:
            if timed in self._known:
                self._known.move_to_end(timed)
                return self._known[timed]
        if self.left <= 0:
            return None
        self.left -= 1
        return self._keep(timed, _fitted(timed))

    def _keep(self, timed: tuple[Timed, ...], model: ThroughputModel) -> ThroughputModel:
        with self._lock:
            self._known[timed] = model
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return model


def models_of(knowledge: Knowledge, fits: Fits) -> Models:
    """A model of each GPU type on which the workload was timed well enough; of the others, none."""
    by_type: dict[int, list[Timed]] = defaultdict(list)
    limits = knowledge.tuning.limits if knowledge.tuning else None
    for (j, gpus, nodes, batch), seen in sorted(knowledge.timed.items()):
        if seen.usable:
            passes = passes_for(batch, gpus, limits)
            by_type[j].append(Timed(nodes, gpus, batch / gpus / (passes + 1), passes, rounded(1 / seen.rate)))
    enough = {j: tuple(timed) for j, timed in by_type.items() if limits or _tells_enough(timed)}
    return {j: model for j, timed in enough.items() if (model := fits.of(timed))}


def passes_for(batch: int, gpus: int, limits: BatchLimits | None) -> int:
    """In how many passes before the last so many samples are done, as `best_batches` has it."""
    if limits is None:
        return 0
    repeats = gpus == 1 and batch > limits.initial
    return max(-(-batch // (gpus * limits.most_per_gpu)) - 1, int(repeats))


def rounded(value: float, grain: float = GRAIN) -> float:
    """To the nearest of values in equal ratios."""
    return exp(round(log(value) / grain) * grain)


def most_alike(machines: Machines, models: Models, j: int) -> ThroughputModel:
    """The model of that type, or else of the type most alike in speed."""
    speed = machines.speed
    return models[min(models, key=lambda other: (other != j, abs(log(speed[other] / speed[j])), other))]


def spans(knowledge: Knowledge) -> bool:
    """Whether gangs over several nodes were timed."""
    return any(nodes > 1 and seen.usable for (_, _, nodes, _), seen in knowledge.timed.items())


def fixed_batch(knowledge: Knowledge) -> int | None:
    """The batch of the workload's steps, however many GPUs share it; None if it grows with them, or is not known."""
    most: dict[Place, tuple[int, int]] = {}
    for (j, gpus, nodes, batch), seen in knowledge.timed.items():
        most[j, gpus, nodes] = max(most.get((j, gpus, nodes), (0, 0)), (seen.reports, batch))
    batches = {batch for _, batch in most.values()}
    return batches.pop() if len(batches) == 1 else None


def steps_per_second(models: Sequence[ThroughputModel], batch: Sequence[int], *, gpus: Ints, nodes: Ints) -> Floats:
    """Rates (W, K) that the models of W workloads predict for steps of the workload's batch (W,)."""
    columns = ThroughputModel(*(np.array(column)[:, None] for column in zip(*models, strict=True)))  # type: ignore[arg-type]  # arrays do as well
    rate: Floats = 1 / columns.step_seconds(nodes, gpus, np.array(batch)[:, None] / gpus)
    return rate


def _tells_enough(timed: Collection[Timed]) -> bool:
    return len({step.local_batch for step in timed if step.nodes == 1}) >= BATCHES


def _fitted(timed: tuple[Timed, ...]) -> ThroughputModel:
    nodes, gpus, local_batch, passes, seconds = zip(*timed, strict=True)
    return fit(Timings.of_steps(nodes, gpus, local_batch, seconds, passes))
