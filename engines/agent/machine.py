"""Description of an agent's machine: name, GPUs (real or emulated), CPUs, memory."""

import hashlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from engines.linux import seconds_since_boot
from engines.protocol import EngineError, GpuReport, NodeReport

MIB = 1 << 20
MOST_EMULATED = 64
IDLE_EVERY_S = 5.0
"""As often as agents of many servers report."""


class EmulatedGpus(NamedTuple):
    """GPUs that are only declared, for trials."""

    gpu_type: str
    number: int

    @classmethod
    def of(cls, text: str) -> Self:
        """From `k80:4`; raises `ValueError`."""
        gpu_type, _, count = text.partition(":")
        if not gpu_type or not count.isdigit() or not 1 <= int(count) <= MOST_EMULATED:
            raise ValueError(f"{text!r} is no type and number of GPUs, as k80:4.")
        return cls(gpu_type, int(count))


def machine_report(name: str, emulated: EmulatedGpus | None, reported: Iterable[NodeReport]) -> NodeReport:
    """The machine's report under this name; `reported` is what its engine says, limits and faults of the disk too.

    The driver is asked by the engine alone, which waits for it no longer than a while. Raises `EngineError` for a
    machine without GPUs.
    """
    reports = list(reported)
    if emulated is None:
        found = next((one for one in reports if one.gpus), None)
        if found is None:
            raise EngineError("This machine has no GPU that its driver reports: install it and nvidia-ml-py.")
        return replace(found, name=name)
    declared = next(one for one in reports if one.name == name)
    gpus = [GpuReport(index) for index in range(emulated.number)]
    return replace(declared, gpu_type=emulated.gpu_type, gpus=gpus, cpus=os.cpu_count() or 1, memory_mib=_memory_mib())


class Describe(Protocol):
    """Reports of the machine; `has_work`: jobs are here, or are about to be."""

    def __call__(self, *, has_work: bool) -> NodeReport: ...


class MachineReports:
    """Reports of the machine while the agent runs: the last one where the engine has none of its GPUs now.

    Without work they are as old as `IDLE_EVERY_S` at most: to ask the driver and the disk was half of an idle turn.
    """

    def __init__(
        self,
        name: str,
        emulated: EmulatedGpus | None,
        look: Callable[[], Iterable[NodeReport]],
        address: Callable[[], str] = str,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._name, self._emulated, self._look, self._address, self._clock = name, emulated, look, address, clock
        self._last: NodeReport | None = None
        self._looked_at_s = -inf

    def __call__(self, *, has_work: bool) -> NodeReport:
        if self._last is not None and not has_work and self._clock() - self._looked_at_s < IDLE_EVERY_S:
            return self._last
        try:
            found = machine_report(self._name, self._emulated, self._look())
            self._last = replace(found, address=self._address())
        except EngineError:
            if self._last is None:
                raise
        self._looked_at_s = self._clock()
        return self._last


def machine_digest() -> str:
    """Digest of the machine's id (or host name), to which a token is bound."""
    try:
        identity = Path("/etc/machine-id").read_text().strip()
    except OSError:
        identity = ""
    return hashlib.sha256(f"motley agent {identity or socket.gethostname()}".encode()).hexdigest()


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
