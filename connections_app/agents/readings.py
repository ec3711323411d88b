"""What an agent says of its GPUs: of those that the service knows of its machine, and only what can be. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engines.protocol import GpuReading, Throttle, WatchedGpu

MOST_UTILIZATION, MOST_MEMORY_MIB, MOST_POWER_W, MOST_TEMPERATURE_C, MOST_ERRORS = 100, 2**24, 5_000, 200, 2**31
"""Beyond these a figure is no GPU's: it is left out, for energy and means are made of them."""


def readings_of(told: Iterable[GpuReading], watched: Sequence[WatchedGpu]) -> list[GpuReading]:
    """The readings, numbered as the service numbers the GPUs: an agent numbers them by their places in its machine."""
    by_place = {one.gpu: one for one in told}
    return [replace(_possible(by_place[gpu.index]), gpu=gpu.gpu) for gpu in watched if gpu.index in by_place]


def _possible(one: GpuReading) -> GpuReading:
    """Without figures that cannot be, and without attempts and processes: claims tell whose the GPU is."""
    errors = one.ecc_errors
    return GpuReading(
        gpu=one.gpu,
        utilization=_within(one.utilization, MOST_UTILIZATION),
        memory_used_mib=_within(one.memory_used_mib, MOST_MEMORY_MIB),
        power_w=_within(one.power_w, MOST_POWER_W),
        temperature_c=_within(one.temperature_c, MOST_TEMPERATURE_C),
        ecc_errors=errors if errors is not None and 0 <= errors <= MOST_ERRORS else None,
        throttle=Throttle(int(one.throttle) & sum(Throttle)),
    )


def _within(value: float | None, most: float) -> float | None:
    return value if value is not None and 0 <= value <= most else None
