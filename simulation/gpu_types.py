"""What is publicly known of GPU types: for traces that say nothing of rates, and for costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimation.knowledge import GpuSpec
from estimation.points import scaling_law
from simulation.cluster import Placement
from simulation.trace import Program

GPU_SPECS = {
    spec.name: spec
    for spec in (
        GpuSpec("k80", tflops=4.1, bandwidth_gbs=240, memory_mib=12_288),
        GpuSpec("m60", tflops=4.8, bandwidth_gbs=160, memory_mib=8_192),
        GpuSpec("p4", tflops=5.5, bandwidth_gbs=192, memory_mib=8_192),
        GpuSpec("p100", tflops=21.2, bandwidth_gbs=732, memory_mib=16_384),
        GpuSpec("v100", tflops=125, bandwidth_gbs=900, memory_mib=16_384),
        GpuSpec("rtx2080ti", tflops=54, bandwidth_gbs=616, memory_mib=11_264),
        GpuSpec("t4", tflops=65, bandwidth_gbs=320, memory_mib=16_384),
        GpuSpec("a10", tflops=125, bandwidth_gbs=600, memory_mib=24_576),
        GpuSpec("a30", tflops=165, bandwidth_gbs=933, memory_mib=24_576),
        GpuSpec("a100", tflops=312, bandwidth_gbs=1555, memory_mib=40_960),
        GpuSpec("l4", tflops=121, bandwidth_gbs=300, memory_mib=24_576),
        GpuSpec("h100", tflops=989, bandwidth_gbs=3350, memory_mib=81_920),
        GpuSpec("h200", tflops=989, bandwidth_gbs=4800, memory_mib=144_384),
    )
}
"""From the makers' data sheets: dense half precision (single, where there is no faster half)."""

PRICE_PER_GPU_HOUR = {"k80": 0.45, "p100": 1.46, "v100": 2.48, "t4": 0.35, "p4": 0.60, "a100": 2.93}
"""Dollars on demand, near what clouds ask for the GPU alone: to compare policies by, not a quotation."""

REFERENCE = "v100"


class UnknownGpuType(KeyError):
    """Nothing is known of a GPU type of this name; says which are known."""

    def __str__(self) -> str:
        return f"the GPU type '{self.args[0]}' is not known; known are {', '.join(GPU_SPECS)}"


@dataclass(frozen=True)
class BySpeed:
    """Rates of any program by the speed of the GPU type and the law of scaling: one V100 does a step per second."""

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        if gpu_type not in GPU_SPECS:
            raise UnknownGpuType(gpu_type)
        faster = GPU_SPECS[gpu_type].speed / GPU_SPECS[REFERENCE].speed
        return faster * float(scaling_law(np.array(sum(placement)), np.array(len(placement))))


def known_prices(gpu_types: Sequence[str]) -> list[float] | None:
    """Dollars per GPU and hour of each type, or None if one is not known."""
    if not set(gpu_types) <= PRICE_PER_GPU_HOUR.keys():
        return None
    return [PRICE_PER_GPU_HOUR[gpu_type] for gpu_type in gpu_types]
