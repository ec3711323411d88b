"""Description of an agent's machine: name, GPUs (real or emulated), CPUs, memory."""

import hashlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from engines.protocol import EngineError, GpuReport, NodeReport

MIB = 1 << 20
MOST_EMULATED = 64


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


class MachineReports:
    """Reports of the machine while the agent runs: the last one where the engine has none of its GPUs now."""

    def __init__(
        self,
        name: str,
        emulated: EmulatedGpus | None,
        look: Callable[[], Iterable[NodeReport]],
        address: Callable[[], str] = str,
    ) -> None:
        self._name, self._emulated, self._look, self._address = name, emulated, look, address
        self._last: NodeReport | None = None

    def __call__(self) -> NodeReport:
        try:
            found = machine_report(self._name, self._emulated, self._look())
            self._last = replace(found, address=self._address())
        except EngineError:
            if self._last is None:
                raise
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
