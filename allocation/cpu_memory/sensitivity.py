"""Sensitivity of a job's throughput to CPUs and memory per GPU: measured as a matrix, or derived from a CPU curve."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocation.types import Floats

CPUS, MEMORY = 0, 1
"""Places in an amount (2,): CPUs per GPU, and GiB of memory per GPU."""
SLACK = 0.01
"""Part of the best throughput that a job's demand may lack."""
MEMORY_STEPS = 16
"""Steps of the memory axis from the floor to the whole data set."""
ROUNDING = 1e-9
WITHOUT_LIMIT = np.array([np.inf, np.inf])


class InvalidSensitivity(ValueError):
    """A matrix is not of its axes' shape, an axis does not ascend, or more CPUs or memory make a job slower."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Throughput of a job by CPUs and memory per GPU, in any one unit.

    Parameters
    ----------
    cpus, memory_gib : (C,) and (M,) float, ascending amounts per GPU.
    throughput : (C, M) float, >= 0, not less with more CPUs or memory.

    Raises
    ------
    InvalidSensitivity
        The arrays do not fit each other, an axis does not ascend, or the throughput falls.
    """

    cpus: Floats
    memory_gib: Floats
    throughput: Floats

    def __post_init__(self) -> None:
        if self.throughput.shape != (self.cpus.size, self.memory_gib.size) or not self.throughput.size:
            raise InvalidSensitivity("the throughput must have a row for each number of CPUs, a column for each memory")
        if any((np.diff(axis) <= 0).any() for axis in (self.cpus, self.memory_gib)):
            raise InvalidSensitivity("CPUs and memory must ascend")
        if any((np.diff(self.throughput, axis=axis) < 0).any() for axis in (0, 1)) or self.throughput.min() < 0:
            raise InvalidSensitivity("the throughput must not fall with more CPUs or memory, nor be negative")

    def at(self, amount: Floats) -> float:
        """Throughput with this amount (2,): that of the largest point of the matrix within it; 0 below all points."""
        c = np.searchsorted(self.cpus, amount[CPUS] + ROUNDING, side="right") - 1
        m = np.searchsorted(self.memory_gib, amount[MEMORY] + ROUNDING, side="right") - 1
        return float(self.throughput[c, m]) if c >= 0 and m >= 0 else 0.0


def best_case_demand(sensitivity: Sensitivity, floor: Floats) -> Floats:
    """Smallest amount (2,) within 1 % of the best throughput, and with no less throughput than the floor (2,) gives.

    Of several the one with the smallest sum of CPUs and memory, each in units of the floor.
    """
    W = sensitivity.throughput
    enough = np.maximum((1 - SLACK) * W.max(), sensitivity.at(floor))
    unit = np.where(floor > 0, floor, 1.0)
    size = sensitivity.cpus[:, None] / unit[CPUS] + sensitivity.memory_gib / unit[MEMORY]
    c, m = np.unravel_index(np.where(enough <= W, size, np.inf).argmin(), W.shape)
    return np.array([sensitivity.cpus[c], sensitivity.memory_gib[m]])


@dataclass(frozen=True)
class DataSet:
    """Data that a job reads: its size, and how fast one GPU takes samples that are in memory already."""

    size_gib: float
    bytes_per_sample: float
    samples_per_s: float


@dataclass(frozen=True)
class Storage:
    """Source of the data on a node: its bandwidth, and the GPUs of the job there that share it and the cache."""

    bytes_per_s: float
    gpus: int


def sensitivity_of_curve(
    cpu_curve: Mapping[int, float],
    floor: Floats,
    data: DataSet | None = None,
    storage: Storage | None = None,
    *,
    most: Floats = WITHOUT_LIMIT,
) -> Sensitivity:
    r"""Derive the matrix from throughputs by CPUs per GPU and, where data is known, from a cache of fixed hit rate.

    .. math::
        T(c, m) = \min\Bigl(T_{\text{cpu}}(c),\ \hat T\,\frac{B}{g\, s\, b\, \max(0, 1 - g m / D)}\Bigr),
        \qquad \hat T = \max T_{\text{cpu}}

    B is the bandwidth of the node's storage, g the job's GPUs there, s the samples/s of a GPU that never waits, b the
    bytes of a sample, m the memory per GPU and D the size of the data set: of each epoch the cached part is read from
    memory, and the rest from storage (MinIO in the source).

    Parameters
    ----------
    cpu_curve : CPUs per GPU -> throughput with all data in memory; linear between them, from 0 below the first.
    floor : (2,) the proportional share, which becomes a point of the matrix.
    most : (2,) what the job's nodes have per GPU of it: no point is above it, or above the floor if that is more.

    References
    ----------
    .. [1] Mohan et al., OSDI 2022, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters", section 3.2.
    """
    most = np.maximum(most, floor)
    cpus = np.unique([min(c, most[CPUS]) for c in (*cpu_curve, floor[CPUS]) if c > 0]).astype(float)
    of_cpus = _along(cpu_curve, cpus)
    if data is None or storage is None:
        return Sensitivity(cpus, floor[MEMORY:], of_cpus[:, None])
    whole_gib = np.clip(data.size_gib / storage.gpus, floor[MEMORY], most[MEMORY])
    memory = np.unique(np.linspace(floor[MEMORY], whole_gib, MEMORY_STEPS + 1))
    of_storage = of_cpus.max() * storage_bound(memory, data, storage)
    return Sensitivity(cpus, memory, np.minimum(of_cpus[:, None], of_storage))


def storage_bound(memory_gib: Floats, data: DataSet, storage: Storage) -> Floats:
    """Bound on the throughput by storage, 1 being that of a GPU that never waits; inf: all data is in memory."""
    missing = np.maximum(1 - storage.gpus * memory_gib / data.size_gib, 0)
    wanted = storage.gpus * data.samples_per_s * data.bytes_per_sample * missing
    bound: Floats = np.divide(storage.bytes_per_s, wanted, out=np.full_like(wanted, np.inf), where=wanted > 0)
    return bound


def _along(cpu_curve: Mapping[int, float], cpus: Floats) -> Floats:
    """Throughput with these CPUs; CPUs that would make it slower are left unused."""
    known = np.array(sorted(cpu_curve), dtype=float)
    rates = np.maximum.accumulate([cpu_curve[int(c)] for c in known])
    along: Floats = np.interp(cpus, [0, *known], [0, *rates])
    return along
