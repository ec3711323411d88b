"""What is known of a workload's speed, and of the GPU types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, sqrt

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
    """The mean rate in steps/s over some progress reports, and its relative spread."""

    rate: float
    reports: int
    spread: float = 0.0

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


@dataclass(frozen=True)
class Knowledge:
    """What is known of one workload: measured by (type, GPUs, nodes), declared by type and GPUs, in steps/s."""

    measured: Mapping[tuple[int, int, int], Measurement] = field(default_factory=dict)
    declared: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    def usable(self) -> dict[tuple[int, int, int], float]:
        """Give the measured rates that may be relied on."""
        return {where: seen.rate for where, seen in sorted(self.measured.items()) if seen.usable}

    def contradictions(self) -> tuple[Contradiction, ...]:
        """Give the declared rates that a measurement, on the fewest nodes seen, contradicts by more than 25 %."""
        seen = {(j, gpus): rate for (j, gpus, _), rate in reversed(self.usable().items())}
        pairs = ((j, gpus, rate, seen.get((j, gpus))) for j, gpus, rate in self._declarations())
        return tuple(
            Contradiction(j, gpus, rate, measured)
            for j, gpus, rate, measured in pairs
            if measured is not None and abs(rate - measured) > CONTRADICTION * measured
        )

    def trusted(self) -> dict[tuple[int, int], float]:
        """Give the declared rates by type and GPUs that nothing contradicts."""
        disproved = {(c.gpu_type, c.gpus) for c in self.contradictions()}
        return {(j, gpus): rate for j, gpus, rate in self._declarations() if rate > 0 and (j, gpus) not in disproved}

    def _declarations(self) -> list[tuple[int, int, float]]:
        return sorted((j, gpus, rate) for j, sizes in self.declared.items() for gpus, rate in sizes.items())
