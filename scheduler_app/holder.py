"""The names under which schedulers hold the lease, and whether one of this machine has been killed."""

import os
import socket
import threading
from functools import cache
from pathlib import Path
from uuid import uuid4

DEAD = {"Z", "X"}
"""A zombie runs no more; only its parent has not heard yet."""


def own_name() -> str:
    """Unique to this process and thread: host, place, process, its start, and a random part."""
    return _name(os.getpid(), threading.get_ident())


def has_ended(holder: str) -> bool:
    """Whether that scheduler ran in this place and runs no more. Of other machines and containers we know nothing."""
    words = holder.rsplit(":", 4)
    return len(words) == 5 and words[1] == _place() and not _runs(int(words[2]), words[3])


@cache
def _name(pid: int, thread: int) -> str:
    """Made on demand: what a process made before it forked would be its children's name, too."""
    host = socket.gethostname()[:30]
    return f"{host}:{_place()}:{pid}:{_start_of(pid)}:{uuid4().hex[:8]}"


def _place() -> str:
    """Where a process id means one process: this boot of this machine, and this container."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"


def _runs(pid: int, began: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another account's, which /proc may hide from us
        return True
    return _start_of(pid) == began


def _start_of(pid: int) -> str:
    """In ticks since boot; empty if the process runs no more."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD else fields[18]
