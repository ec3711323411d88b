"""The disk of an engine's folder: whether attempts can be started on it, and its errors."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engines.protocol import NodeFault, NodeReport, NodeState

LEAST_FREE_BYTES = 16 * 1024 * 1024
"""Free space below which a disk counts as full: no attempt is started on it."""


@contextmanager
def file_errors_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        raise NodeFault(
            f"Writing {path} or starting its supervisor failed ({error}): check that the disk is not full, that the "
            "service may write there, and that util-linux is installed."
        ) from error


def with_disk_fault(reports: list[NodeReport], folder: Path) -> list[NodeReport]:
    """The reports, of nodes out of service if no attempt can be started in this folder."""
    fault = disk_fault(folder)
    return [replace(one, state=NodeState.CORDONED, reason=fault) for one in reports] if fault else reports


def disk_fault(folder: Path) -> str:
    """Why no attempt can be started in this folder; empty if one can. A file is written, and removed."""
    trial = folder / ".writable"
    try:
        disk = os.statvfs(folder)
        trial.touch()
        trial.unlink()
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}): check its disk."
    free = disk.f_bavail * disk.f_frsize
    full = free < LEAST_FREE_BYTES or (disk.f_files > 0 and disk.f_favail == 0)
    return f"The disk of {folder} is full: {free // 2**20} MiB are free. Free some space there." if full else ""
