"""Removal of discarded folders: renamed at once, removed by a background process.

Run as `python -ES -m engines.supervision.discard <folder of what was set aside>`.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path

from engines.supervision.engine_root import THROUGH, make_folder, start_in_background

LOCK = "lock"
EMPTY = 'chmod -R u+rwX -- "$1"; rm -rf --one-file-system -- "$1"'
"""Neither has a limit of depth; the first is for folders that their owner may not write, as those of conda packages."""


def discard(folders: Iterable[Path], *, aside: Path) -> None:
    """Rename the existing folders, and start to remove all renamed ones. Idempotent, whatever the content."""
    make_folder(aside, THROUGH)
    for folder in folders:
        with suppress(FileNotFoundError):
            folder.rename(aside / f"{folder.parent.name}-{folder.name}-{time.time_ns()}")
    start_in_background("engines.supervision.discard", aside)


def main() -> None:
    aside = Path(sys.argv[1])
    lock = os.open(aside / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    flock(lock, LOCK_EX)  # until we end; what we would find meanwhile is removed by who holds it
    for folder in aside.iterdir():
        if folder.name != LOCK:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove what others own as its owner: root may be nobody on NFS. The rest goes without following a link."""
    with suppress(OSError):
        for part in folder.iterdir():
            if part.is_dir() and not part.is_symlink():
                _empty_as_owner(part)
    shutil.rmtree(folder, ignore_errors=True)


def _empty_as_owner(folder: Path) -> None:
    """Remove the content of a folder; it stays itself where only the owner of the one above may remove it."""
    owner = folder.lstat()
    subprocess.run(  # noqa: S603 - our own words
        ["/bin/sh", "-c", EMPTY, "sh", folder],
        stderr=subprocess.DEVNULL,
        check=False,
        **({"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
    )


if __name__ == "__main__":
    main()
