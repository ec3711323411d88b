"""How the processes of a job are kept together, so that none can slip away."""

import os
import subprocess
from enum import StrEnum


class Isolation(StrEnum):
    """Strongest first."""

    NAMESPACE = "namespace"
    """A PID namespace: the kernel kills all that is in it."""
    USER_NAMESPACE = "user_namespace"
    """The same, inside a user namespace, for a service that is not root."""
    SUBREAPER = "subreaper"
    """Orphans come back to us and are killed; a mark in the environment finds what has slipped away."""


_OF_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")
PREFIXES = {
    Isolation.NAMESPACE: ("unshare", *_OF_PIDS),
    Isolation.USER_NAMESPACE: ("unshare", "--user", "--map-current-user", *_OF_PIDS),
    Isolation.SUBREAPER: (),
}
"""What is put before the command line of the first process."""


def best_isolation() -> Isolation:
    """The strongest that this machine allows us: containers and hardened kernels forbid some."""
    return next(isolation for isolation in Isolation if _works(isolation))


def _works(isolation: Isolation) -> bool:
    if isolation is Isolation.NAMESPACE and os.geteuid() != 0:
        return False
    try:
        tried = subprocess.run([*PREFIXES[isolation], "true"], capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError:  # no util-linux here
        return False
    return tried.returncode == 0
