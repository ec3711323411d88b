"""Where the rate of a workload is known, which of these points to go by, and the law of scaling from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np

from estimation.profile import GpuSpec, Knowledge, Place
from estimation.types import Bools, Floats, Ints

SCALING_EXPONENT = 0.8
SPANNING_FACTOR = 0.7
REFERENCE_SPEED = 33.5  # nothing is known: a V100, whose speed is 335, is taken to make 10 steps/s


class Source(IntEnum):
    """Where an estimate comes from; of a rate, none: the job cannot run so."""

    NONE = 0
    ESTIMATED = 1
    DECLARED = 2
    MEASURED = 3
    COMPLETED = 4
    """Better than estimated; the number is the next, since rounds are archived with these numbers."""
    SIMILAR = 5
    """From jobs that ended before, of a similar name or of the same owner: of durations only."""
    SAMPLED = 6
    """From tasks of the same array that have ended: of durations only."""
    FITTED = 7
    """By the model of step times that is fitted to the workload; better than estimated."""
    ASSUMED = 8
    """No rate of the workload is known anywhere: only the ratios between configurations mean something."""


class Point(NamedTuple):
    """Where a rate is known: so many GPUs of a type on so many nodes; and from what."""

    gpu_type: int
    gpus: int
    nodes: int
    source: Source


@dataclass(frozen=True, eq=False)
class Machines:
    """The configurations that rates are wanted for: n GPU types, usage (n, K) GPUs of each type, on nodes (K,)."""

    specs: Sequence[GpuSpec]
    usage: Ints
    nodes: Ints

    @cached_property
    def gpus(self) -> Ints:
        """Total GPUs of each configuration (K,)."""
        total: Ints = self.usage.sum(axis=0)
        return total

    @cached_property
    def speed(self) -> Floats:
        """The speed of each GPU type (n,)."""
        return np.array([spec.speed for spec in self.specs])

    @cached_property
    def usual_nodes(self) -> Mapping[tuple[int, int], int]:
        """Type and GPUs → nodes; the first offer is the one in equal parts."""
        if not self.specs:  # a cluster without a GPU type offers nothing
            return {}
        columns = zip(self.usage.argmax(axis=0).tolist(), self.gpus.tolist(), self.nodes.tolist(), strict=True)
        return {(j, gpus): nodes for j, gpus, nodes in reversed(list(columns))}

    @cached_property
    def _declared(self) -> dict[tuple[tuple[int, int], ...], tuple[Point, ...]]:
        """What was asked of `declared_at` before."""
        return {}

    def declared_at(self, places: tuple[tuple[int, int], ...]) -> tuple[Point, ...]:
        """Where rates are known that an owner declares for these types and GPUs; thousands declare the same places."""
        if places not in self._declared:
            self._declared[places] = tuple(
                Point(j, gpus, self.usual_nodes.get((j, gpus), 1), Source.DECLARED) for j, gpus in places
            )
        return self._declared[places]


def points_of(machines: Machines, knowledge: Knowledge) -> tuple[tuple[Point, ...], tuple[float, ...]]:
    """Where rates of a workload are known, measured ones first, and the rates; where there is none, a guess."""
    measured, declared = knowledge.measured.usable, knowledge.trusted()
    points = (*_measured_at(tuple(measured)), *machines.declared_at(tuple(declared)))
    if points:
        return points, (*measured.values(), *declared.values())
    fastest = int(machines.speed.argmax())
    return (Point(fastest, 1, 1, Source.ASSUMED),), (float(machines.speed[fastest]) / REFERENCE_SPEED,)


@lru_cache(maxsize=10_000)
def _measured_at(places: tuple[Place, ...]) -> tuple[Point, ...]:
    return tuple(Point(*place, Source.MEASURED) for place in places)


@dataclass(frozen=True, eq=False)
class Points:
    """The points (P,) as columns."""

    gpu_type: Ints
    gpus: Ints
    nodes: Ints
    source: Ints

    @property
    def assumed(self) -> bool:
        """Whether no rate is known, and the one point is a guess."""
        return bool((self.source == Source.ASSUMED).all())

    @classmethod
    def of(cls, points: Sequence[Point]) -> Self:
        return cls(*(np.array(column) for column in zip(*points, strict=True)))


@dataclass(frozen=True, eq=False)
class Leads:
    """For gangs as large as each configuration's, all of one type: the point (K,) to go by.

    Exact (K,): the rate is known at that very place. Faster (K,): the speed of the type over that of the point's.
    """

    point: Ints
    exact: Bools
    faster: Floats

    @classmethod
    def of(cls, machines: Machines, points: Points, j: int) -> Self:
        gpus, nodes = machines.gpus, machines.nodes
        faster = machines.speed[j] / machines.speed[points.gpu_type]
        nearest = _nearest(points, j, faster, gpus, nodes)
        alike = (points.nodes[nearest] == nodes) | (points.source[nearest] == Source.DECLARED)  # owners name no nodes
        exact = (points.gpu_type[nearest] == j) & (points.gpus[nearest] == gpus) & alike
        return cls(nearest, exact, faster[nearest])


def _nearest(points: Points, j: int, faster: Floats, gpus: Ints, nodes: Ints) -> Ints:
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


def scaling_law(gpus: Ints, nodes: Ints) -> Floats:
    """How many times the rate of one GPU so many reach, on so many nodes."""
    scaled: Floats = gpus.astype(float) ** SCALING_EXPONENT * np.where(nodes > 1, SPANNING_FACTOR, 1.0)
    return scaled
