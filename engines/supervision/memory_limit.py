"""Memory limit of a rank: by its cgroup, or by adding up the memory of its processes and killing them above it."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engines.supervision.cgroup import was_killed_for_memory
from engines.supervision.processes import descendants, kill

if TYPE_CHECKING:  # of the modules of attempts, an init process needs none at its start
    from engines.attempt_files import RankLimits

POLL_S = 1.0
PROC = Path("/proc")


class MemoryLimit:
    """Memory limit of the rank: once a second the memory of its processes is added up; above it, all are killed."""

    def __init__(self, limit_mib: int, node: str) -> None:
        self._limit_mib, self._node = limit_mib, node
        self._next_poll_s = 0.0
        self.exceeded = ""
        """What was used and asked for, once it has been too much."""

    @classmethod
    def of(cls, limits: "RankLimits | None", node: str) -> "MemoryLimit":
        cgroup = limits.get("cgroup") if limits else None
        if cgroup is not None and "memory.max" in cgroup["limits"]:
            return KernelMemoryLimit(cgroup["path"], int(cgroup["limits"]["memory.max"]) // 2**20, node)
        return cls(limits["memory_mib"] if limits else 0, node)

    @property
    def interval_s(self) -> float | None:
        return POLL_S if self._limit_mib else None

    def look(self) -> None:
        if not self._limit_mib or time.monotonic() < self._next_poll_s:
            return
        self._next_poll_s = time.monotonic() + POLL_S
        self._look()

    def look_once_more(self) -> None:
        """Find out whether the processes that have ended were killed for memory; only the kernel can have done so."""

    def _look(self) -> None:
        family = descendants(os.getpid())
        used_mib = _memory_mib(family, limit_mib=self._limit_mib)
        if used_mib > self._limit_mib:
            kill(family)
            self._note(f"{used_mib / 1024:,.1f} GiB")

    def _note(self, used: str) -> None:
        self.exceeded = (
            f"It used {used} of memory on {self._node} and had asked for "
            f"{self._limit_mib / 1024:,.1f} GiB: ask for more by `memory_per_gpu`."
        )


class KernelMemoryLimit(MemoryLimit):
    """Memory limit of the rank's cgroup: the kernel kills all processes in it, and its events tell."""

    def __init__(self, cgroup: str, limit_mib: int, node: str) -> None:
        super().__init__(limit_mib, node)
        self._cgroup = cgroup

    def look_once_more(self) -> None:
        self._look()

    def _look(self) -> None:
        if not self.exceeded and was_killed_for_memory(self._cgroup):
            kill(descendants(os.getpid()))
            self._note(f"more than {self._limit_mib / 1024:,.1f} GiB")


def _memory_mib(pids: Iterable[int], *, limit_mib: int) -> float:
    """Memory of the processes together, in MiB: an upper bound if that is below the limit, else without shared pages
    being counted twice, which takes the kernel a walk over all pages."""
    pids = list(pids)
    most = sum(_resident_kib(pid) for pid in pids) / 1024
    return most if most <= limit_mib else sum(_proportional_kib(pid) for pid in pids) / 1024


def _resident_kib(pid: int) -> int:
    """RSS: pages that several processes share count for each."""
    return _kib_in(PROC / str(pid) / "status", "VmRSS:")


def _proportional_kib(pid: int) -> int:
    """PSS: a shared page counts for each process by its part of it."""
    return _kib_in(PROC / str(pid) / "smaps_rollup", "Pss:")


def _kib_in(path: Path, name: str) -> int:
    """Number on the line that begins with the name; 0 if the process has ended."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
