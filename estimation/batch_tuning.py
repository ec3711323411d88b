r"""Rates of jobs whose batch is tuned: the batch for each configuration, and the goodput that it reaches.

In configuration k, samples per second are those known at the nearest point p, times what the model says of the change:

.. math::
    X_k(b, a) = X_p \cdot \frac{v_{j(k)}}{v_{j(p)}} \cdot \frac{\hat X(d_k, g_k, b, a)}{\hat X(d_p, g_p, b_p, a_p)},
    \qquad T_k = \max_{b,\,a} \frac{X_k(b, a)}{M_0}\,\mathrm{efficiency}(M), \quad M = g_k b (a + 1)

so that a type of which only the rate on one GPU is known is projected from one that was fitted by the ratio of those
rates (Sia, section 3.3). Without a model the law of scaling stands in for it, by which no batch is faster than another:
the batch is then the initial one, or the least that the GPUs can share. T is in steps of the initial batch M0 per
second, and so is every rate of such a job; a step of the job's own is worth gain(M) of them.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from estimation.fitted_models import Fits, models_of, most_alike, passes_for, rounded
from estimation.goodput import (
    NO_NOISE,
    BatchChoice,
    Batches,
    BatchLimits,
    GradientNoise,
    batch_choices,
    best_batches,
    gain,
)
from estimation.profile import GpuSpec, Knowledge
from estimation.scaling import Leads, Machines, Point, Points, Source, points_of, scaling_law
from estimation.throughput_model import ThroughputModel
from estimation.types import Floats, Ints

NOISE_GRAIN = 0.1
"""The noise is rounded to steps of 10 %: the best batch follows it slowly, and no estimate of it is as good as that."""


class Tuned(NamedTuple):
    """For each configuration (K,) of one workload: rate, its source, and the batch to run with."""

    rate: Floats
    """Steps of the initial batch per second; 0: no batch within the limits."""
    source: Ints
    batch: Ints
    """Samples of a step of the whole job."""
    passes: Ints
    """In how many passes more than one each GPU does its part."""
    gain: Floats
    """How many steps of the initial batch a step is worth."""
    limits: BatchLimits
    model: Floats
    """Parameters (7, K) of the throughput model of each configuration; 0: none is fitted."""

    def choices(self, k: int, *, nodes: int, gpus: int) -> list[BatchChoice]:
        """Batches of configuration k among which a running job may choose; none without a model."""
        if not self.model[:, k].any():
            return []
        model = ThroughputModel(*self.model[:, k].tolist())
        return batch_choices(model.throughput, self.limits, nodes=nodes, gpus=gpus)


def tuned_rates(machines: Machines, knowledge: Knowledge, fits: Fits) -> Tuned:
    """The best batch of every configuration; kept while what is known does not change by more than a few percent."""
    if knowledge.tuning is None:
        raise ValueError("The batch of this workload is not to be tuned.")
    points = tuple((point, rounded(rate)) for point, rate in zip(*points_of(machines, knowledge), strict=True))
    noise = _of_ratio(knowledge.tuning.noise)
    batches = tuple(_batch_at(point, knowledge) for point, _ in points)
    case = _Case(points, batches, tuple(models_of(knowledge, fits).items()), knowledge.tuning.limits, noise)
    found = _tuned(tuple(machines.specs), _rows(machines.usage), tuple(machines.nodes.tolist()), case)
    return _exactly(found, machines, knowledge)


class _Case(NamedTuple):
    """What the answer depends on, besides the machines."""

    points: tuple[tuple[Point, float], ...]
    batches: tuple[int, ...]
    models: tuple[tuple[int, ThroughputModel], ...]
    limits: BatchLimits
    noise: GradientNoise


def _of_ratio(noise: GradientNoise | None) -> GradientNoise:
    """Only the ratio matters."""
    if noise is None or noise.var <= 0:
        return NO_NOISE
    return GradientNoise(1.0, rounded(noise.var / noise.sqr, NOISE_GRAIN)) if noise.sqr > 0 else GradientNoise(0.0, 1.0)


def _batch_at(point: Point, knowledge: Knowledge) -> int:
    """The batch behind a known rate: declared ones are those of the initial batch."""
    assert knowledge.tuning is not None  # noqa: S101 - checked where they come from
    place = (point.gpu_type, point.gpus, point.nodes)
    seen = {where[3]: m.reports for where, m in sorted(knowledge.timed.items()) if where[:3] == place and m.usable}
    known = bool(seen) and point.source == Source.MEASURED
    return max(seen, key=seen.__getitem__) if known else knowledge.tuning.limits.initial


def _rows(usage: Ints) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in usage.tolist())


@lru_cache(maxsize=8192)
def _tuned(
    specs: tuple[GpuSpec, ...], usage: tuple[tuple[int, ...], ...], nodes: tuple[int, ...], case: _Case
) -> Tuned:
    table, on = np.array(usage, dtype=np.int64).reshape(len(specs), len(nodes)), np.array(nodes, dtype=np.int64)
    K = len(nodes)
    rate, batch, passes = np.full(K, np.inf), np.zeros(K, dtype=np.int64), np.zeros(K, dtype=np.int64)
    model = np.zeros((len(ThroughputModel._fields), K))
    found = Tuned(rate, np.zeros(K, dtype=np.int64), batch, passes, np.ones(K), case.limits, model)
    for j in range(len(specs)):
        columns = np.flatnonzero(table[j])
        of_type = _of_type(Machines(specs, table[:, columns], on[columns]), case, j)
        slower = of_type.rate < rate[columns]  # a mixed gang waits for its slowest GPU
        for whole, part in zip(_arrays(found), _arrays(of_type), strict=True):
            whole[..., columns[slower]] = part[..., slower]
    for array in _arrays(found):
        array.flags.writeable = False  # it is shared
    return found


def _arrays(tuned: Tuned) -> tuple[Floats | Ints, ...]:
    """Its columns, by configuration along the last axis."""
    return tuned.rate, tuned.source, tuned.batch, tuned.passes, tuned.gain, tuned.model


def _of_type(machines: Machines, case: _Case, j: int) -> Tuned:
    """As if all GPUs of each configuration were of type j."""
    gpus, nodes, limits = machines.gpus, machines.nodes, case.limits
    leads = Leads.of(machines, Points.of([point for point, _ in case.points]), j)
    known = np.array([rate for _, rate in case.points])[leads.point] * leads.faster
    model = most_alike(machines, dict(case.models), j) if case.models else None
    samples = known * limits.initial / _shape_at_points(model, case)[leads.point]

    def throughput(nodes: Ints, gpus: Ints, local: Ints, passes: Ints) -> Floats:
        return samples * _shape(model, nodes, gpus, local, passes)

    best = best_batches(throughput, limits, case.noise, nodes=nodes, gpus=gpus)
    best = _within(best, limits, gpus)
    worth = gain(case.noise, best.total(gpus) / limits.initial)
    steps = throughput(nodes, gpus, best.local, best.passes) / best.total(gpus)
    rate = np.where(best.goodput > 0, steps * worth, 0)
    declared = leads.exact & (best.total(gpus) == limits.initial) & _declared(case)[leads.point]
    source = np.where(declared, Source.DECLARED, _source_elsewhere(model, case))
    parameters = np.zeros(len(ThroughputModel._fields)) if model is None else np.array(model)
    by_column = np.tile(parameters[:, None], len(gpus))
    return Tuned(rate, source, best.total(gpus), best.passes, worth, limits, by_column)


def _source_elsewhere(model: ThroughputModel | None, case: _Case) -> Source:
    """Source of rates where none was declared or measured."""
    if all(point.source == Source.ASSUMED for point, _ in case.points):
        return Source.ASSUMED
    return Source.FITTED if model else Source.ESTIMATED


def _declared(case: _Case) -> Ints:
    return np.array([point.source == Source.DECLARED for point, _ in case.points])


def _shape_at_points(model: ThroughputModel | None, case: _Case) -> Floats:
    """What the model says of the points' own batches (P,)."""
    columns = [
        (point.nodes, point.gpus, batch / point.gpus / (passes + 1), passes)
        for (point, _), batch in zip(case.points, case.batches, strict=True)
        for passes in [passes_for(batch, point.gpus, case.limits)]
    ]
    nodes, gpus, local, passes = (np.array(column) for column in zip(*columns, strict=True))
    return _shape(model, nodes, gpus, local, passes)


def _shape(model: ThroughputModel | None, nodes: Ints, gpus: Ints, local: Ints | Floats, passes: Ints) -> Floats:
    if model is None:
        return scaling_law(gpus, nodes)
    return model.throughput(nodes, gpus, local, passes)


def _within(best: Batches, limits: BatchLimits, gpus: Ints) -> Batches:
    """Shares are rounded up: where that makes the batch too large, they are rounded down."""
    floor = limits.most // (gpus * (best.passes + 1))
    local = np.where(best.total(gpus) > limits.most, np.maximum(floor, 1), best.local)
    possible = (local >= limits.least_per_gpu) & (gpus * limits.least_per_gpu <= limits.most)
    return Batches(local, best.passes, np.where(possible, best.goodput, 0))


def _exactly(found: Tuned, machines: Machines, knowledge: Knowledge) -> Tuned:
    """With what was measured with that very batch in its place."""
    j, mixed = machines.usage.argmax(axis=0).tolist(), ((machines.usage > 0).sum(axis=0) > 1).tolist()
    places = zip(j, machines.gpus.tolist(), machines.nodes.tolist(), found.batch.tolist(), strict=True)
    seen = [None if k else knowledge.timed.get(place) for place, k in zip(places, mixed, strict=True)]
    here = {k: m.rate for k, m in enumerate(seen) if m is not None and m.usable and found.rate[k] > 0}
    if not here:
        return found
    rate, source, at = found.rate.copy(), found.source.copy(), list(here)
    rate[at], source[at] = np.array(list(here.values())) * found.gain[at], Source.MEASURED
    return found._replace(rate=rate, source=source)
