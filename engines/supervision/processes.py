"""Processes of an attempt, read from /proc: the proof that none is left."""

import os
import signal
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

MARK = "MOTLEY_ATTEMPT_MARK"
"""Environment variable of every process of an attempt; its value is random."""

_PROC = Path("/proc")
_PF_KTHREAD = 0x00200000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def marked(mark: str) -> list[int]:
    """Living processes with this mark in their environment, in this PID namespace and those below it."""
    entry = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if entry in _environ(pid)]


def environment_of(pid: int) -> dict[str, str]:
    """Environment with which a process was started; empty if it has ended or belongs to somebody else."""
    entries = (entry.decode(errors="surrogateescape").partition("=") for entry in _environ(pid) if b"=" in entry)
    return {name: value for name, _, value in entries}


def user_ids(pid: int) -> set[int]:
    """Real, effective, saved and file system user ids of a process; empty if it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {int(word) for line in lines if line.startswith("Uid:") for word in line.split()[1:]}


def any_process_is_exiting(users: Container[int], *, since_s: float = 0.0) -> bool:
    """Whether a process of these users that started since then (seconds since boot) is exiting.

    It has lost its environment and its mark, but may be process 1 of a PID namespace that the kernel is still emptying.
    """
    return any(_is_exiting(pid, since_s) and any(user in users for user in user_ids(pid)) for pid in _pids())


def _is_exiting(pid: int, since_s: float) -> bool:
    """Whether the process lives and no thread of it has memory: one whose first thread has ended is not exiting."""
    stat = _stat(_PROC / str(pid))
    if stat is None or not stat.is_alive or stat.has_memory or stat.is_of_the_kernel or stat.started_s < since_s:
        return False
    return not any(thread.has_memory for path in _threads(pid) if (thread := _stat(path)) is not None)


def descendants(ancestor: int) -> list[int]:
    """Living descendants of this process, without zombies."""
    parents = {pid: stat.parent for pid in _pids() if (stat := _stat(_PROC / str(pid))) is not None and stat.is_alive}
    family = {ancestor}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sorted(family - {ancestor})


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each; processes that have ended are skipped."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reap() -> dict[int, int]:
    """Reap ended children and return their exit codes as a shell reports them."""
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
    """Exit code as a shell reports it: 128 + n for signal n, which Python reports as -n."""
    return 128 - code if code < 0 else code


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> list[bytes]:
    """Environment, read from another thread where the first has ended: it is empty there, though the process lives."""
    try:
        text = (_PROC / str(pid) / "environ").read_bytes()
        texts = iter([text]) if text else ((path / "environ").read_bytes() for path in _threads(pid))
        return next((text.split(b"\0") for text in texts if text), [])
    except OSError:  # the process has ended, or belongs to another user and is not ours
        return []


def _threads(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


class _Stat(NamedTuple):
    parent: int
    is_alive: bool
    """A zombie with other running threads is alive."""
    has_memory: bool
    is_of_the_kernel: bool
    started_s: float
    """Seconds since boot, rounded up to the kernel's next tick."""


def _stat(path: Path) -> _Stat | None:
    """Of a process or a thread, by its folder in /proc."""
    try:
        text = (path / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # from field 3 on: the name before it may hold spaces and brackets
    state, parent, flags, threads, ticks, virtual_bytes = (fields[number - 3] for number in (3, 4, 9, 20, 22, 23))
    return _Stat(
        parent=int(parent),
        is_alive=state not in "ZX" or int(threads) > 1,
        has_memory=virtual_bytes != "0",
        is_of_the_kernel=bool(int(flags) & _PF_KTHREAD),
        started_s=(int(ticks) + 1) / _TICKS_PER_S,
    )
