"""What is known of a workload's speed, and of the GPU types."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, sqrt

from estimation.goodput import BatchLimits, GradientNoise

USABLE_REPORTS = 3  # the first reports of a run still hold its warm-up
CONTRADICTION = 0.25


@dataclass(frozen=True)
class GpuSpec:
    """A GPU type as its maker describes it."""

    name: str
    tflops: float
    bandwidth_gbs: float
    memory_mib: int

    @property
    def speed(self) -> float:
        """The geometric mean of arithmetic and bandwidth: training is bound by either, and which is not known."""
        return sqrt(self.tflops * self.bandwidth_gbs)


@dataclass(frozen=True)
class Measurement:
    """The mean rate in steps/s over some progress reports, their spread in steps/s, and that between runs."""

    rate: float
    reports: int
    spread: float = 0.0
    runs: int = 0
    """Attempts behind it; 0: not counted."""
    weight: int = 0
    """Of these, those whose deviation is known: the latest."""
    deviation: float = 0.0
    """Standard deviation of the logarithm of the rate between them."""

    @property
    def usable(self) -> bool:
        return self.reports >= USABLE_REPORTS and isfinite(self.rate) and self.rate > 0


@dataclass(frozen=True)
class Contradiction:
    """A declared rate that a measurement disproves, both in steps/s."""

    gpu_type: int
    gpus: int
    declared: float
    measured: float


Place = tuple[int, int, int]
"""GPU type, GPUs, nodes."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of a workload by (type, GPUs, nodes); thousands of jobs may share it."""

    by_place: Mapping[Place, Measurement] = field(default_factory=dict)

    @cached_property
    def usable(self) -> dict[Place, float]:
        """The rates that may be relied on, in steps/s."""
        return {where: seen.rate for where, seen in sorted(self.by_place.items()) if seen.usable}

    @cached_property
    def on_fewest_nodes(self) -> dict[tuple[int, int], float]:
        """Of those, by (type, GPUs) the one on the fewest nodes."""
        return {(j, gpus): rate for (j, gpus, _), rate in reversed(self.usable.items())}


@dataclass(frozen=True)
class Tuning:
    """Between what limits the batch of a job may be chosen, and what is known of its gradient's noise, if anything."""

    limits: BatchLimits
    noise: GradientNoise | None = None


@dataclass(frozen=True)
class Knowledge:
    """What is known of one workload: what was measured, and the rates declared by (type, GPUs), in steps/s.

    Steps are the job's own; where its batch is tuned they are steps of the initial batch, as many as have its samples.
    """

    measured: Measured = field(default_factory=Measured)
    declared: Mapping[tuple[int, int], float] = field(default_factory=dict)
    timed: Mapping[tuple[int, int, int, int], Measurement] = field(default_factory=dict)
    """By (type, GPUs, nodes, batch): the job's own steps/s with so many samples in a step, where it reported them."""
    tuning: Tuning | None = None
    """None: the batch is the job's own affair."""

    @classmethod
    def of_batches(
        cls,
        seen: Mapping[tuple[int, int, int, int], Measurement],
        declared: Mapping[tuple[int, int], float],
        tuning: Tuning | None = None,
    ) -> "Knowledge":
        """Of what was measured by (type, GPUs, nodes, batch); batch 0: the job did not say."""
        if not seen and tuning is None:
            return cls(declared=declared)
        timed = {where: m for where, m in sorted(seen.items()) if where[3]}
        if tuning is None:
            return cls(Measured(_over_batches(seen)), declared, timed)
        initial = tuning.limits.initial
        in_initial_steps = {
            where: replace(m, rate=m.rate * where[3] / initial, spread=m.spread * where[3] / initial)
            for where, m in timed.items()
        }
        return cls(Measured(_most_reported(in_initial_steps)), declared, timed, tuning)

    @property
    def is_known(self) -> bool:
        """Whether any rate of the workload is known: all others are guesses without one."""
        return bool(self.measured.usable or self.trusted())

    def with_declared(self, declared: Mapping[tuple[int, int], float]) -> "Knowledge":
        """The same workload, for a job whose owner declares these rates."""
        return Knowledge(self.measured, declared, self.timed, self.tuning)

    def contradictions(self) -> tuple[Contradiction, ...]:
        """Give the declared rates that a measurement, on the fewest nodes seen, contradicts by more than 25 %."""
        pairs = ((where, self.declared.get(where), rate) for where, rate in self.measured.on_fewest_nodes.items())
        return tuple(
            Contradiction(*where, declared, measured)
            for where, declared, measured in pairs
            if declared is not None and abs(declared - measured) > CONTRADICTION * measured
        )

    def trusted(self) -> dict[tuple[int, int], float]:
        """Give the declared rates by type and GPUs that nothing contradicts."""
        trusted = {where: rate for where, rate in self.declared.items() if rate > 0}
        for disproved in self.contradictions():
            trusted.pop((disproved.gpu_type, disproved.gpus), None)
        return trusted


def _over_batches(seen: Mapping[tuple[int, int, int, int], Measurement]) -> dict[Place, Measurement]:
    """The mean over the batches, by the reports behind each."""
    by_place: dict[Place, list[Measurement]] = defaultdict(list)
    for (*place, _), measurement in seen.items():
        by_place[place[0], place[1], place[2]].append(measurement)
    return {place: _mean(of_place) for place, of_place in by_place.items()}


def _mean(measurements: list[Measurement]) -> Measurement:
    if len(measurements) == 1:
        return measurements[0]
    reports, runs, weight = (sum(getattr(m, name) for m in measurements) for name in ("reports", "runs", "weight"))
    if not reports:
        return measurements[0]
    rate, spread, deviation = (
        sum(getattr(m, name) * m.reports for m in measurements) / reports for name in ("rate", "spread", "deviation")
    )
    return Measurement(rate, reports, spread, runs, weight, deviation)


def _most_reported(seen: Mapping[tuple[int, int, int, int], Measurement]) -> dict[Place, Measurement]:
    """Of each place what was measured with the batch that was reported most."""
    rising = sorted(seen.items(), key=lambda item: item[1].reports)
    return {(where[0], where[1], where[2]): measurement for where, measurement in rising}
