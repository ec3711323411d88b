"""Which processes are there, read from /proc: the proof that nothing of an attempt is left."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

MARK = "MOTLEY_ATTEMPT_MARK"
"""Each process of an attempt carries this variable with the attempt's random word."""

_PROC = Path("/proc")


def marked(mark: str) -> list[int]:
    """Living processes that carry the mark, in this PID namespace and those below it."""
    entry = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if entry in _environ(pid)]


def descendants(ancestor: int) -> list[int]:
    """Living processes below this one; zombies do not count."""
    parents = {pid: parent for pid in _pids() if (parent := _living_parent(pid)) is not None}
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


def _living_parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # the name before it may hold spaces and brackets
    return None if state in "ZX" else int(parent)
