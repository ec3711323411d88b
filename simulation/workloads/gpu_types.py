"""Rates and prices by the public specification of a GPU type, for traces that record neither."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.scaling import scaling_law
from simulation.cluster import Placement
from simulation.traces.trace import Program

REFERENCE = "v100"


class UnknownGpuType(KeyError):
    """Unknown GPU type; the message lists the known ones."""

    def __str__(self) -> str:
        return f"unknown GPU type '{self.args[0]}'; the known ones are {', '.join(GPU_SPECIFICATIONS)}"


@dataclass(frozen=True)
class BySpeed:
    """Rates of any program from the speed of the GPU type and the scaling law; one V100 does a step per second."""

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        if gpu_type not in GPU_SPECIFICATIONS:
            raise UnknownGpuType(gpu_type)
        faster = GPU_SPECIFICATIONS[gpu_type].spec.speed / GPU_SPECIFICATIONS[REFERENCE].spec.speed
        return faster * float(scaling_law(np.array(sum(placement)), np.array(len(placement))))


def known_prices(gpu_types: Sequence[str]) -> list[float] | None:
    """Dollars per GPU-hour of each type, or None if one is unknown."""
    prices = [GPU_SPECIFICATIONS[name].price_per_hour if name in GPU_SPECIFICATIONS else None for name in gpu_types]
    known = [price for price in prices if price is not None]
    return known if len(known) == len(prices) else None
