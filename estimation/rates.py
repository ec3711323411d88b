r"""Rates of jobs in configurations: measured before declared before completed before estimated before assumed.

An untried configuration is estimated from the nearest known point of its workload,

.. math::
    T_k = T_p \cdot \frac{v_{j(k)}}{v_{j(p)}} \cdot \frac{s(g_k, d_k)}{s(g_p, d_p)}, \qquad
    s(g, d) = g^{0.8} \cdot 0.7^{[d > 1]}

with v the speed of a GPU type, g GPUs on d nodes. On the throughputs that Gavel published, the median exponent of 19
distributable workloads from 1 to 2, 4 and 8 GPUs lies between 0.6 and 0.9, and GPUs on several servers reach a median
of 0.7 of the rate on one (P100); the ratio of speeds is within 25 % of the median ratio of rates of each pair of types.

Where the workload's steps were timed with several batches per GPU (`estimation.fitted_models`), the fitted model says
instead of s how the rate changes with the GPUs, of its own type and of those that were not timed so well. Where the
batch is tuned (`estimation.batch_tuning`), a rate is goodput: steps of the initial batch per second.

Where other workloads tell how rates on one type and gang go with those on others (`estimation.completion`), rates on
types that have no fitted model of the workload are completed from them, in place of the formula above.

Where no rate of the workload is known, one is assumed (a V100 makes 10 steps/s, or what other workloads make on
average): the ratios between configurations are meant, not the numbers, and no user is told them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from estimation.batch_tuning import tuned_rates
from estimation.completion import Cells, RateFactors
from estimation.fitted_models import Fits, Models, fixed_batch, models_of, most_alike, spans, steps_per_second
from estimation.profile import Knowledge
from estimation.scaling import Leads, Machines, Point, Points, Source, points_of, scaling_law
from estimation.types import Bools, Floats, Ints

__all__ = ["Machines", "Source", "estimate_rates", "valid_configurations", "workload_rates"]


def valid_configurations(
    machines: Machines, *, gpu_types: Bools, least_gpus: int, most_gpus: int, gpu_memory_mib: float = 0
) -> Bools:
    """Which configurations (K,) a job may have: allowed types (n,), enough memory, a gang of allowed size."""
    memory = np.array([spec.memory_mib for spec in machines.specs])
    refused = ~gpu_types | (memory < gpu_memory_mib)
    elsewhere = (machines.usage[refused] > 0).any(axis=0)
    allowed: Bools = ~elsewhere & (machines.gpus >= least_gpus) & (machines.gpus <= most_gpus)
    return allowed


def estimate_rates(
    machines: Machines,
    known: Sequence[Knowledge],
    workload: Ints,
    valid: Bools,
    factors: RateFactors | None = None,
) -> tuple[Floats, Ints]:
    """Give rate (m, K) in steps/s and its source (m, K), for jobs of the workloads known[workload[i]].

    valid (m, K) says which configurations job i may have; the others get rate 0 and no source. Of a workload whose
    batch is tuned the steps are those of its initial batch, and what no batch fits has rate 0, too. The factors are
    those of other workloads on the same types.
    """
    rates, sources = _rates(machines, known, factors)
    able = valid & (rates[workload] > 0)
    return np.where(able, rates[workload], 0), np.where(able, sources[workload], Source.NONE)


def workload_rates(machines: Machines, knowledge: Knowledge, factors: RateFactors | None = None) -> tuple[Floats, Ints]:
    """Give rate (K,) in steps/s and source (K,) of one workload in every configuration."""
    rates, sources = _rates(machines, [knowledge], factors)
    return rates[0], sources[0]


def _rates(machines: Machines, known: Sequence[Knowledge], factors: RateFactors | None) -> tuple[Floats, Ints]:
    """Rates and sources (W, K); workloads that are known at the same points are estimated together."""
    alike: dict[tuple[Point, ...], list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    rates, fits = np.zeros((len(known), len(machines.nodes))), Fits()
    sources = np.zeros(rates.shape, dtype=np.int64)
    for w, knowledge in enumerate(known):
        if knowledge.tuning:
            rates[w], sources[w] = tuned_rates(machines, knowledge, fits)[:2]
        else:
            points, rates_there = points_of(machines, knowledge)
            alike[points].append((w, rates_there))
    models = {w: fit for w, knowledge in enumerate(known) if (fit := _fit_of(knowledge, fits))}
    for points, members in alike.items():
        rows = [w for w, _ in members]
        group = _Group(
            machines,
            Points.of(points),
            np.array([r for _, r in members]),
            [(row, models[w]) for row, w in enumerate(rows) if w in models],
            factors,
        )
        rates[rows], sources[rows] = group.rates()
    return rates, sources


class _Fit(NamedTuple):
    """The models of a workload, for steps of its batch."""

    models: Models
    batch: int
    spans: bool


def _fit_of(knowledge: Knowledge, fits: Fits) -> _Fit | None:
    batch = None if knowledge.tuning else fixed_batch(knowledge)
    models = models_of(knowledge, fits) if batch else None
    return _Fit(models, batch, spans(knowledge)) if batch and models else None


@dataclass(frozen=True, eq=False)
class _Group:
    """Workloads whose rates at these points are known (W, P), and the models of those that have some."""

    machines: Machines
    points: Points
    known: Floats
    fits: Sequence[tuple[int, _Fit]]
    """By row."""
    factors: RateFactors | None

    def rates(self) -> tuple[Floats, Ints]:
        """Rates and sources (W, K)."""
        by_type = [self._of_type(j) for j in range(len(self.machines.specs))]
        used = self.machines.usage > 0
        of_type = np.array([rate for rate, _ in by_type])
        rate = np.where(used[:, None], of_type, np.inf).min(axis=0)  # a mixed gang waits for its slowest GPU
        source = np.where(used, [source for _, source in by_type], Source.MEASURED).min(axis=0)
        mixed = used.sum(axis=0) > 1
        source = np.tile(np.where(mixed, Source.ESTIMATED, source), (len(rate), 1))
        estimated, fitted = ~mixed & (source == Source.ESTIMATED), self._fitted()
        source, open_here = np.where(estimated & fitted, Source.FITTED, source), estimated & ~fitted
        if self.factors and open_here.any():
            rate, source = self._completed(rate, source, open_here)
        return rate, np.full_like(source, Source.ASSUMED) if self.points.assumed else source

    def _fitted(self) -> Bools:
        """Which configurations (W, K) are of a type to which a model of the workload is fitted."""
        fitted = np.zeros((len(self.known), len(self.machines.specs)), dtype=np.bool_)
        for row, fit in self.fits:
            fitted[row, list(fit.models)] = True
        by_column: Bools = fitted[:, self.machines.usage.argmax(axis=0)]
        return by_column

    def _completed(self, rate: Floats, source: Ints, open_here: Bools) -> tuple[Floats, Ints]:
        """With rates completed where they are open and the other workloads tell something of the type."""
        assert self.factors is not None  # noqa: S101 - checked by the caller
        known = self.points.source != Source.ASSUMED
        told = known & self.factors.supported[self.points.gpu_type]
        if known.any() and not told.any():
            return rate, source
        at = Cells(self.points.gpu_type[told], self.points.gpus[told], self.points.nodes[told])
        cells = Cells(self.machines.usage.argmax(axis=0), self.machines.gpus, self.machines.nodes)
        completed = open_here & self.factors.supported[cells.gpu_type]
        found = self.factors.complete(at, self.known[:, told], cells)
        return np.where(completed, found.rate, rate), np.where(completed, Source.COMPLETED, source)

    def _of_type(self, j: int) -> tuple[Floats, Ints]:
        """Rates (W, K) and sources (K,) of gangs as large as each configuration's, if all their GPUs were of type j."""
        leads = Leads.of(self.machines, self.points, j)
        scaled = np.where(leads.exact, 1, leads.faster * self._scaled(leads, j))
        known_here = leads.exact & (self.points.source[leads.point] != Source.ASSUMED)
        source = np.where(known_here, self.points.source[leads.point], Source.ESTIMATED)
        return self.known[:, leads.point] * scaled, source

    def _scaled(self, leads: Leads, j: int) -> Floats:
        """The change of the rate (W, K) from the points to the configurations, GPUs being alike."""
        to, at = (self.machines.gpus, self.machines.nodes), (self.points.gpus, self.points.nodes)
        law = scaling_law(*to) / scaling_law(*at)[leads.point]
        scaled = np.tile(law, (len(self.known), 1))
        if not self.fits:
            return scaled
        rows, fits = [row for row, _ in self.fits], [fit for _, fit in self.fits]
        models, batch = [most_alike(self.machines, fit.models, j) for fit in fits], [fit.batch for fit in fits]
        there, here = (steps_per_second(models, batch, gpus=gpus, nodes=nodes) for gpus, nodes in (to, at))
        # What spanning nodes costs is not told by gangs that never did: there the law holds.
        trusted = np.array([fit.spans for fit in fits])[:, None] | (np.maximum(to[1], at[1][leads.point]) == 1)
        scaled[rows] = np.where(trusted, there / here[:, leads.point], law)
        return scaled
