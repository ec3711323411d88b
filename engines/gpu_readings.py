"""Readings of this machine's GPUs, by NVML, in one pass of a thread of its own; plausible ones of emulated GPUs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import pi, sin
from threading import Thread
from typing import Any
from zlib import crc32

from engines.nvml import MIB, compute_processes, driver_is_there, ecc_errors
from engines.protocol import GpuReading, Throttle, WatchedGpu

try:
    import pynvml
except ImportError:
    pynvml = None

PATIENCE_S = 0.2
"""A pass over eight GPUs takes milliseconds; that of a GPU which hangs is fetched when it is over."""
IDLE_C, FULL_LOAD_C = 32.0, 72.0
IDLE_POWER = 0.15
"""Part of the power limit."""


class GpuReader:
    """Reads all GPUs of this machine; a driver that hangs delays no caller, and is not called again meanwhile."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._thread: Thread | None = None
        self._found: dict[str, GpuReading] = {}

    def read(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        """Readings of these GPUs by UUID, without GPUs that the driver does not list."""
        numbers = {gpu.uuid: gpu.gpu for gpu in gpus if gpu.uuid}
        if not numbers:
            return []
        return [replace(found, gpu=numbers[uuid]) for uuid, found in self._take(list(numbers)) if uuid in numbers]

    def _take(self, uuids: Sequence[str]) -> list[tuple[str, GpuReading]]:
        """Readings of a pass; of one that takes longer than the timeout, each reading once, as they arrive."""
        late = self._thread is not None
        if self._thread is None:
            self._thread = Thread(target=self._read_all, args=(uuids,), daemon=True)
            self._thread.start()
        self._thread.join(self._patience_s)
        if not self._thread.is_alive():
            self._thread = None
        found, self._found = self._found, {}
        # Whose the processes of a late reading were is not known: attempts may have come and gone since.
        return [(uuid, replace(one, processes=None) if late else one) for uuid, one in found.items()]

    def _read_all(self, uuids: Sequence[str]) -> None:
        for uuid in uuids if driver_is_there() else ():
            with suppress(pynvml.NVMLError):  # a GPU without a handle: the report on its node says so
                one = reading(pynvml.nvmlDeviceGetHandleByUUID(uuid))
                self._found[uuid] = one


def reading(handle: Any) -> GpuReading:
    """Present reading of one GPU; `gpu` is 0."""
    memory = _asked(pynvml.nvmlDeviceGetMemoryInfo, handle)
    load = _asked(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = _asked(pynvml.nvmlDeviceGetPowerUsage, handle)
    temperature = _asked(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    slowed = _asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    processes = _asked(compute_processes, handle)
    return GpuReading(
        gpu=0,
        utilization=None if load is None else float(load.gpu),
        memory_used_mib=None if memory is None else memory.used / MIB,
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=None if temperature is None else float(temperature),
        ecc_errors=ecc_errors(handle),
        throttle=Throttle(int(slowed or 0) & sum(Throttle)),
        processes=None if processes is None else tuple(processes),
    )


def site_readings(given: Sequence[int]) -> dict[int, GpuReading]:
    """Readings of the GPUs that a site assigned, by the site's numbers; none without a driver.

    Whose the processes on them are is not known: the service has other numbers of them.
    """
    handles = _visible() if driver_is_there() else []
    places = places_of(given, [_asked(pynvml.nvmlDeviceGetMinorNumber, handle) for handle in handles])
    return {number: replace(reading(handles[place]), processes=None) for number, place in places.items()}


def places_of(given: Sequence[int], minors: Sequence[int | None]) -> dict[int, int]:
    """Number of each given GPU → its place among the visible ones, of which the minor numbers are known. Pure.

    A site's numbers are usually those of the device files. Where they are not, and only what was given is visible,
    the order tells.
    """
    if set(given) <= set(minors):
        return {number: minors.index(number) for number in given}
    return {number: place for place, number in enumerate(sorted(given))} if len(given) == len(minors) else {}


def _visible() -> list[Any]:
    """Handles of the visible GPUs, without lost ones."""
    handles = (
        _asked(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(_asked(pynvml.nvmlDeviceGetCount) or 0)
    )
    return [handle for handle in handles if handle is not None]


def _asked(question: Any, *arguments: Any) -> Any:
    """The driver's answer; None: this GPU, or this driver, has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def emulated_readings(gpus: Sequence[WatchedGpu], at_s: float) -> list[GpuReading]:
    """Plausible readings of emulated GPUs: a training's load where an attempt runs, idle elsewhere."""
    return [_emulated(gpu, at_s) for gpu in gpus if gpu.emulated]


def _emulated(gpu: WatchedGpu, at_s: float) -> GpuReading:
    """Load that swings by 5 % around 92 % in five minutes, each GPU at another phase; power and heat follow it."""
    swing = sin(2 * pi * (at_s / 300 + crc32(f"{gpu.node}/{gpu.index}".encode()) / 2**32))
    load = 0.92 + 0.05 * swing if gpu.busy else 0.0
    return GpuReading(
        gpu=gpu.gpu,
        utilization=round(100 * load, 1),
        memory_used_mib=round((0.8 if gpu.busy else 0.01) * gpu.memory_mib),
        power_w=round(gpu.power_w * (IDLE_POWER + (0.9 - IDLE_POWER) * load), 1),
        temperature_c=round(IDLE_C + (FULL_LOAD_C - IDLE_C) * load, 1),
        ecc_errors=0,
        processes=(),
    )
