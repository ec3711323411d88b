"""Isolation of a job's processes, so that all can be killed: PID namespace or child subreaper."""

import os
import subprocess
from enum import StrEnum


class Isolation(StrEnum):
    """Kinds of isolation, the strongest first."""

    NAMESPACE = "namespace"
    """PID namespace: the kernel kills all its processes with its process 1."""
    USER_NAMESPACE = "user_namespace"
    """PID namespace inside a user namespace, for a service that is not root."""
    SUBREAPER = "subreaper"
    """Child subreaper: orphans become our children and are killed; a mark in the environment finds the others."""


_OF_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")
PREFIXES = {
    Isolation.NAMESPACE: ("unshare", *_OF_PIDS),
    Isolation.USER_NAMESPACE: ("unshare", "--user", "--map-current-user", *_OF_PIDS),
    Isolation.SUBREAPER: (),
}
"""Prefix of the command line of the init process."""


def best_isolation() -> Isolation:
    """The strongest isolation that this machine allows: containers and hardened kernels forbid some."""
    return next(isolation for isolation in Isolation if _works(isolation))


def _works(isolation: Isolation) -> bool:
    if isolation is Isolation.NAMESPACE and os.geteuid() != 0:
        return False
    try:
        tried = subprocess.run([*PREFIXES[isolation], "true"], capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError:  # util-linux is not installed
        return False
    return tried.returncode == 0
