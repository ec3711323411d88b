"""Readings of this machine's GPUs for the service, every five seconds: half the time between two looks of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from engines.gpu_readings import GpuReader
from engines.linux import seconds_since_boot
from engines.protocol import GpuReading, NodeReport, WatchedGpu

EVERY_S = 5.0


class GpuSamples:
    """Readings when they are due, numbered as the machine numbers its GPUs; none of emulated ones.

    Whose processes are on a GPU is the owner's business, and is left out.
    """

    def __init__(self, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._clock, self._reader = clock, GpuReader()
        self._due_s = 0.0

    def __call__(self, node: NodeReport) -> Sequence[GpuReading]:
        now_s = self._clock()
        if now_s < self._due_s:
            return ()
        self._due_s = now_s + EVERY_S
        gpus = [WatchedGpu(one.index, node.name, one.index, one.uuid) for one in node.gpus]
        return [replace(one, processes=None) for one in self._reader.read(gpus)]
