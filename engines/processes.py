"""Which processes are there, read from /proc: the proof that nothing of an attempt is left."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MARK = "MOTLEY_ATTEMPT_MARK"
"""Each process of an attempt carries this variable with the attempt's random word."""

_PROC = Path("/proc")
_PF_KTHREAD = 0x00200000


def marked(mark: str) -> list[int]:
    """Living processes that carry the mark, in this PID namespace and those below it."""
    entry = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if entry in _environ(pid)]


def someone_is_dying() -> bool:
    """Whether a process on this machine is just ending: it has lost its environment, and so any mark, but it may be
    process 1 of a PID namespace that is only now being emptied."""
    stats = [stat for pid in _pids() if (stat := _stat(pid)) is not None]
    return any(stat.is_alive and not stat.has_memory and not stat.is_of_the_kernel for stat in stats)


def descendants(ancestor: int) -> list[int]:
    """Living processes below this one; zombies do not count."""
    parents = {pid: stat.parent for pid in _pids() if (stat := _stat(pid)) is not None and stat.is_alive}
    family = {ancestor}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sorted(family - {ancestor})


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reap() -> dict[int, int]:
    """The exit codes, as a shell counts them, of our children that have ended since the last call."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = shell_code(os.waitstatus_to_exitcode(status))


def shell_code(code: int) -> int:
    """128 + n for signal n, which Python writes as -n."""
    return 128 - code if code < 0 else code


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # it has just ended, or is another user's and so not ours
        return []


class _Stat(NamedTuple):
    parent: int
    is_alive: bool
    """A zombie whose other threads go on is alive."""
    has_memory: bool
    is_of_the_kernel: bool


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # from field 3 on: the name before it may hold spaces and brackets
    state, parent, flags, threads, virtual_bytes = (fields[number - 3] for number in (3, 4, 9, 20, 23))
    return _Stat(
        parent=int(parent),
        is_alive=state not in "ZX" or int(threads) > 1,
        has_memory=virtual_bytes != "0",
        is_of_the_kernel=bool(int(flags) & _PF_KTHREAD),
    )
