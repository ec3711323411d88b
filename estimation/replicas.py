"""Rates of hybrid-parallel jobs: what is known and what is asked, in replicas in place of GPUs.

A replica of a model that takes several GPUs is to the estimation what a GPU is to other jobs: rates at one number of
replicas say those at another, and a type is as much faster than another as one replica there is. Between types the
number of replicas stays, and the GPUs follow from what a replica takes there (Sia, section 3.4). Until rates are known,
a replica of u GPUs is taken to be u^0.8 times as fast as one, by the law of scaling.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from estimation.batch_tuning import Tuned
from estimation.profile import Knowledge, Measured, Measurement
from estimation.scaling import SCALING_EXPONENT, Machines
from estimation.types import Bools, Ints

Number = TypeVar("Number", np.float64, np.int64)
Value = TypeVar("Value", Measurement, float)


@dataclass(frozen=True, eq=False)
class InReplicas:
    """Machines as jobs see them whose replicas take units (n,) GPUs of each type; 0: none can be there."""

    units: Ints
    columns: Ints
    """Configurations (k,) of whole replicas, each on one type."""
    machines: Machines
    """These, with replicas in place of GPUs."""
    total: int
    """Number of all configurations K."""

    @classmethod
    def of(cls, machines: Machines, units: Ints) -> Self:
        """Machines of which replicas of one GPU are the GPUs themselves."""
        K = len(machines.nodes)
        if (units == 1).all():
            return cls(units, np.arange(K), machines, K)
        whole = np.flatnonzero(_whole(machines.usage, units))
        usage = machines.usage[:, whole] // np.maximum(units, 1)[:, None]
        specs = [
            replace(spec, tflops=spec.tflops * faster, bandwidth_gbs=spec.bandwidth_gbs * faster)
            for spec, unit in zip(machines.specs, units.tolist(), strict=True)
            for faster in [max(unit, 1) ** SCALING_EXPONENT]
        ]
        return cls(units, whole, Machines(specs, usage, machines.nodes[whole]), K)

    @property
    def of_gpus(self) -> bool:
        """Whether each replica is one GPU of any type."""
        return bool((self.units == 1).all())

    def known(self, knowledge: Knowledge) -> Knowledge:
        """What is known of a workload, by replicas; what was seen with a part of one is left out."""
        if self.of_gpus:
            return knowledge
        measured = Measured(self._by_replicas(knowledge.measured.by_place))
        declared = self._by_replicas(knowledge.declared)
        return Knowledge(measured, declared, self._by_replicas(knowledge.timed), knowledge.tuning)

    def _by_replicas(self, seen: Mapping[Any, Value]) -> dict[Any, Value]:
        """By (type, replicas, …) what is known by (type, GPUs, …)."""
        return {
            (j, gpus // self.units[j], *others): value
            for (j, gpus, *others), value in seen.items()
            if self.units[j] and gpus % self.units[j] == 0
        }

    def spread(self, part: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Values (…, k) of these configurations among all (…, K); 0 for the others."""
        whole = np.zeros((*part.shape[:-1], self.total), dtype=part.dtype)
        whole[..., self.columns] = part
        return whole

    def spread_tuned(self, tuned: Tuned) -> Tuned:
        """The same of tuned batches."""
        return Tuned(
            rate=self.spread(tuned.rate),
            source=self.spread(tuned.source),
            batch=self.spread(tuned.batch),
            passes=self.spread(tuned.passes),
            gain=self.spread(tuned.gain),
            limits=tuned.limits,
            model=self.spread(tuned.model),
        )


def _whole(usage: Ints, units: Ints) -> Bools:
    """Which configurations (K,) are of one type and consist of whole replicas."""
    on_one = (usage > 0).sum(axis=0) == 1
    unit = units[usage.argmax(axis=0)]
    whole: Bools = on_one & (unit > 0) & (usage.sum(axis=0) % np.maximum(unit, 1) == 0)
    return whole
