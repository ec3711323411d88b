r"""Rates of jobs in configurations: measured before declared before estimated.

An untried configuration is estimated from the nearest known point of its workload,

.. math::
    T_k = T_p \cdot \frac{v_{j(k)}}{v_{j(p)}} \cdot \frac{s(g_k, d_k)}{s(g_p, d_p)}, \qquad
    s(g, d) = g^{0.8} \cdot 0.7^{[d > 1]}

with v the speed of a GPU type, g GPUs on d nodes. On the throughputs that Gavel published, the median exponent of 19
distributable workloads from 1 to 2, 4 and 8 GPUs lies between 0.6 and 0.9, and GPUs on several servers reach a median
of 0.7 of the rate on one (P100); the ratio of speeds is within 25 % of the median ratio of rates of each pair of types.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from estimation.knowledge import GpuSpec, Knowledge

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SCALING_EXPONENT = 0.8
SPANNING_FACTOR = 0.7
REFERENCE_SPEED = 33.5  # nothing is known: a V100, whose speed is 335, is taken to make 10 steps/s


class Source(IntEnum):
    """Where a rate comes from; none: the job cannot run so."""

    NONE = 0
    ESTIMATED = 1
    DECLARED = 2
    MEASURED = 3


@dataclass(frozen=True, eq=False)
class Machines:
    """The configurations that rates are wanted for: n GPU types, usage (n, K) GPUs of each type, on nodes (K,)."""

    specs: Sequence[GpuSpec]
    usage: Ints
    nodes: Ints

    @property
    def gpus(self) -> Ints:
        """Total GPUs of each configuration (K,)."""
        total: Ints = self.usage.sum(axis=0)
        return total

    @property
    def speed(self) -> Floats:
        """The speed of each GPU type (n,)."""
        return np.array([spec.speed for spec in self.specs])


def valid_configurations(
    machines: Machines, *, gpu_types: Bools, least_gpus: int, most_gpus: int, gpu_memory_mib: float = 0
) -> Bools:
    """Which configurations (K,) a job may have: allowed types (n,), enough memory, a gang of allowed size."""
    memory = np.array([spec.memory_mib for spec in machines.specs])
    refused = ~gpu_types | (memory < gpu_memory_mib)
    elsewhere = (machines.usage[refused] > 0).any(axis=0)
    allowed: Bools = ~elsewhere & (machines.gpus >= least_gpus) & (machines.gpus <= most_gpus)
    return allowed


def estimate_rates(machines: Machines, known: Sequence[Knowledge], workload: Ints, valid: Bools) -> tuple[Floats, Ints]:
    """Give rate (m, K) in steps/s and its source (m, K), for jobs of the workloads known[workload[i]].

    valid (m, K) says which configurations job i may have; the others get rate 0 and no source.
    """
    rates, sources = _rates(machines, known)
    return np.where(valid, rates[workload], 0), np.where(valid, sources[workload], Source.NONE)


def workload_rates(machines: Machines, knowledge: Knowledge) -> tuple[Floats, Ints]:
    """Give rate (K,) in steps/s and source (K,) of one workload in every configuration."""
    rates, sources = _rates(machines, [knowledge])
    return rates[0], sources[0]


def _rates(machines: Machines, known: Sequence[Knowledge]) -> tuple[Floats, Ints]:
    """Rates and sources (W, K); workloads that are known at the same points are estimated together."""
    usual = _usual_nodes(machines)
    alike: dict[tuple[Point, ...], list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    for w, knowledge in enumerate(known):
        points, rates_there = zip(*_points(machines, knowledge, usual).items(), strict=True)
        alike[points].append((w, rates_there))
    rates = np.zeros((len(known), len(machines.nodes)))
    sources = np.zeros(rates.shape, dtype=np.int64)
    for points, members in alike.items():
        rows = [w for w, _ in members]
        rates[rows], sources[rows] = _rates_from(machines, _Points.of(points), np.array([r for _, r in members]))
    return rates, sources


class Point(NamedTuple):
    """Where a rate is known: so many GPUs of a type on so many nodes; and from what."""

    gpu_type: int
    gpus: int
    nodes: int
    source: Source


def _usual_nodes(machines: Machines) -> dict[tuple[int, int], int]:
    """Type and GPUs → nodes; the first offer is the one in equal parts."""
    if not machines.specs:  # a cluster without a GPU type offers nothing
        return {}
    columns = zip(machines.usage.argmax(axis=0).tolist(), machines.gpus.tolist(), machines.nodes.tolist(), strict=True)
    return {(j, gpus): nodes for j, gpus, nodes in reversed(list(columns))}


def _points(machines: Machines, knowledge: Knowledge, usual: Mapping[tuple[int, int], int]) -> dict[Point, float]:
    """The known rates of a workload, measured ones first; where there is none, a guess."""
    known = {Point(j, g, d, Source.MEASURED): rate for (j, g, d), rate in knowledge.usable().items()}
    declared = knowledge.trusted().items()
    known |= {Point(j, g, usual.get((j, g), 1), Source.DECLARED): rate for (j, g), rate in declared}
    if known:
        return known
    fastest = int(machines.speed.argmax())
    return {Point(fastest, 1, 1, Source.ESTIMATED): float(machines.speed[fastest]) / REFERENCE_SPEED}


@dataclass(frozen=True, eq=False)
class _Points:
    """The points (P,) as columns."""

    gpu_type: Ints
    gpus: Ints
    nodes: Ints
    source: Ints

    @classmethod
    def of(cls, points: Sequence[Point]) -> Self:
        return cls(*(np.array(column) for column in zip(*points, strict=True)))


def _rates_from(machines: Machines, points: _Points, known: Floats) -> tuple[Floats, Ints]:
    """Rates (W, K) and sources (K,) of workloads whose rates at these points are known (W, P)."""
    by_type = [_type_rates(machines, points, known, j) for j in range(len(machines.specs))]
    used = machines.usage > 0
    of_type = np.array([rate for rate, _ in by_type])
    rate = np.where(used[:, None], of_type, np.inf).min(axis=0)  # a mixed gang waits for its slowest GPU
    source = np.where(used, [source for _, source in by_type], Source.MEASURED).min(axis=0)
    mixed = used.sum(axis=0) > 1
    return rate, np.where(mixed, Source.ESTIMATED, source)


def _type_rates(machines: Machines, points: _Points, known: Floats, j: int) -> tuple[Floats, Ints]:
    """Rates (W, K) and sources (K,) of gangs as large as each configuration's, if all their GPUs were of type j."""
    gpus, nodes = machines.gpus, machines.nodes
    faster = machines.speed[j] / machines.speed[points.gpu_type]
    nearest = _nearest(points, j, faster, gpus, nodes)
    alike = (points.nodes[nearest] == nodes) | (points.source[nearest] == Source.DECLARED)  # owners name no nodes
    exact = (points.gpu_type[nearest] == j) & (points.gpus[nearest] == gpus) & alike
    scaled = _scale(gpus, nodes) / _scale(points.gpus, points.nodes)[nearest]
    rate = known[:, nearest] * np.where(exact, 1, faster[nearest] * scaled)
    return rate, np.where(exact, points.source[nearest], Source.ESTIMATED)


def _nearest(points: _Points, j: int, faster: Floats, gpus: Ints, nodes: Ints) -> Ints:
    """The known point (K,) to go by: same type, then alike in speed, in GPUs, in nodes; measured first."""
    P, K = len(points.source), len(gpus)
    closeness = np.abs(np.log(gpus[:, None] / points.gpus))
    keys = (
        np.broadcast_to(-points.source, (K, P)),
        nodes[:, None] != points.nodes,
        closeness,
        np.broadcast_to(np.abs(np.log(faster)), (K, P)),
        np.broadcast_to(points.gpu_type != j, (K, P)),
    )
    first: Ints = np.lexsort(keys, axis=1)[:, 0]
    return first


def _scale(gpus: Ints, nodes: Ints) -> Floats:
    scaled: Floats = gpus.astype(float) ** SCALING_EXPONENT * np.where(nodes > 1, SPANNING_FACTOR, 1.0)
    return scaled
