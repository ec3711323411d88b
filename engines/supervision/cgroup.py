"""The cgroup (v2) of a rank: made by its supervisor, joined by the job, killed and removed at the end."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engines.supervision.device_filter import attach_device_filter

if TYPE_CHECKING:  # of the modules of attempts, an init process needs none at its start
    from engines.attempt_files import CgroupFile


def make(cgroup: "CgroupFile") -> None:
    """Make the cgroup with its limits. A file that an older kernel lacks, as `memory.swap.max` may be, is left out."""
    path = Path(cgroup["path"])
    path.mkdir(mode=0o755, exist_ok=True)
    write_limits(cgroup["path"], cgroup["limits"])
    if (minors := cgroup.get("gpu_minors")) is not None:
        attach_device_filter(str(path), minors)


def write_limits(path: str, limits: Mapping[str, str]) -> None:
    """Write limits into the files of a cgroup; those that are not there, or went with it, are left out."""
    for name, text in limits.items():
        with suppress(FileNotFoundError):
            _write(Path(path) / name, text)


def join(path: str) -> None:
    """Move this process into the cgroup; its children will be there, too."""
    _write(Path(path) / "cgroup.procs", "0")


def may_join(path: str) -> bool:
    return os.access(Path(path) / "cgroup.procs", os.W_OK)


def kill_members(path: str) -> bool:
    """Kill all processes of the cgroup and of those below it; whether there were any."""
    cgroup = Path(path)
    if "populated 1" not in _read(cgroup / "cgroup.events"):
        return False
    try:
        _write(cgroup / "cgroup.kill", "1")
    except OSError:  # Linux before 5.14, or the cgroup has just been removed
        for pid in _read(cgroup / "cgroup.procs").split():
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
    return True


def remove(path: str) -> None:
    """Remove the cgroup and those that a job has made below it; one with processes stays."""
    with suppress(OSError):
        for folder, _, _ in os.walk(path, topdown=False):
            Path(folder).rmdir()


def was_killed_for_memory(path: str) -> bool:
    """Whether the kernel has killed processes because the cgroup reached its own limit, not the machine its."""
    events = dict(line.split() for line in _read(Path(path) / "memory.events").splitlines())
    return events.get("oom", "0") != "0" and events.get("oom_kill", "0") != "0"


def _read(path: Path) -> str:
    """Content of the file; empty without it."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
