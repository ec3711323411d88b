"""Memory that a rank holds: sampled in its init process, its greatest amount kept in a file.

What counts is memory of the processes themselves and what they share: no cache of files, which the kernel takes back
by itself. With a cgroup it is read there, else added up over the processes, shared pages once.
"""

import os
import time
from contextlib import suppress

from engines.supervision.processes import descendants

FIRST_S, EVERY_S = 1.0, 10.0
COST_PART = 0.01
"""Part of one CPU that samples take at most: of large processes the kernel walks over all pages."""
GROWTH_MIB = 16
"""Growth that is written."""
MOST_WALKED_KIB = 32 * 2**20
"""Memory, as each process counts it, above which it is not walked: of 4 GiB that takes 0.1 to 0.2 s, in which this
process hears nothing."""
OWN = ("anon", "shmem")
RESIDENT = ("RssAnon:", "RssShmem:")
OF_PROCESS = ("Pss_Anon:", "Pss_Shmem:")
"""Linux 5.9 and newer; before, the whole PSS counts, with parts of libraries."""


class MemoryUse:
    """Samples the memory of this process's descendants, and writes the greatest amount in MiB to the file."""

    def __init__(self, path: str, cgroup: str) -> None:
        self._path, self._cgroup = path, cgroup
        self._written_mib = 0
        self._next_s = time.monotonic() + FIRST_S

    @property
    def interval_s(self) -> float | None:
        """Longest wait for the next sample; None: nothing is sampled."""
        return max(self._next_s - time.monotonic(), 0.0) if self._path else None

    def look(self) -> None:
        if not self._path or (began_s := time.monotonic()) < self._next_s:
            return
        used_mib = self._written_mib
        with suppress(OSError, ValueError, IndexError):  # this process must not end because a file is odd
            used_mib = held_mib(self._cgroup, self._written_mib)
        self._next_s = time.monotonic() + max(EVERY_S, (time.monotonic() - began_s) / COST_PART)
        if used_mib >= self._written_mib + GROWTH_MIB or (used_mib and not self._written_mib):
            self._written_mib = used_mib
            _write(self._path, str(used_mib))


def held_mib(cgroup: str, known_mib: int = 0) -> int:
    """MiB that the processes of the cgroup hold; without it, this process's descendants.

    These are walked only where they may hold more than is known, by what each counts for itself; of very large ones
    the largest counts alone, which is less than all hold.
    """
    found = _named(f"{cgroup}/memory.stat", OWN) if cgroup else None
    if found is not None:
        return sum(found.values()) // 2**20
    resident_kib = {pid: _resident_kib(pid) for pid in descendants(os.getpid())}
    most_kib = sum(resident_kib.values())
    if most_kib // 1024 <= known_mib:
        return known_mib
    if most_kib > MOST_WALKED_KIB:
        return max(resident_kib.values()) // 1024
    return sum(_held_kib(pid) for pid in resident_kib) // 1024


def _resident_kib(pid: int) -> int:
    return sum((_named(f"/proc/{pid}/status", RESIDENT) or {}).values())


def _held_kib(pid: int) -> int:
    found = _named(f"/proc/{pid}/smaps_rollup", (*OF_PROCESS, "Pss:")) or {}
    own = [found[name] for name in OF_PROCESS if name in found]
    return sum(own) if own else found.get("Pss:", 0)


def _named(path: str, names: tuple[str, ...]) -> dict[str, int] | None:
    """Numbers of the lines that begin with these names; None: there is no such file, or its process has ended."""
    try:
        # Names of processes are cut at 15 bytes, within a character too. pathlib costs a third of the start.
        with open(path, errors="replace") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
    except OSError:
        return None
    return {words[0]: int(words[1]) for words in lines if words and words[0] in names}


def _write(path: str, text: str) -> None:
    beside = f"{path}.partial"
    with suppress(OSError):  # a full disk costs a sample
        with open(beside, "w") as file:  # noqa: PTH123 - as above
            file.write(text)
        os.replace(beside, path)  # noqa: PTH105 - as above
