"""Shared storage of servers, each of which mounts it in a mount namespace of its own, and may lose it for a while.

What servers mount is one folder, bound to one path. Where it is not mounted the path is an empty folder, as that of a
file system of which the mount is gone. Disks that are mounted below `root` afterwards are seen by all servers.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLDS = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", 'mount --bind "$0" "$1" && echo && exec sleep inf')
STORAGE = "ledgers"
"""A folder on it: the mount point is there without the mount, too."""


class ServerMounts:
    """Mount namespaces of servers, by number from 1; `path` is that of the storage on them."""

    def __init__(self, root: Path) -> None:
        self._kept, self._at = root / "storage", root / "shared"
        for folder in (self._kept, self._at):
            folder.mkdir()
            folder.chmod(0o711)  # whatever the umask: jobs pass through
        self.kept = self._kept / STORAGE
        """The storage as its file server sees it."""
        self.kept.mkdir()
        self.kept.chmod(0o777)  # of the account of jobs
        self._holders: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def path(self) -> Path:
        return self._at / STORAGE

    def add(self, number: int) -> tuple[str, ...]:
        """Make the namespace of this server, with the storage; the command that enters it."""
        holder = subprocess.Popen([*HOLDS, str(self._kept), str(self._at)], stdout=subprocess.PIPE)
        self._holders[number] = holder
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        return self._enter(number)

    def vanish(self, number: int) -> None:
        """What has files open keeps them; their names are gone."""
        self._run(number, "umount", "--lazy", str(self._at))

    def restore(self, number: int) -> None:
        self._run(number, "mount", "--bind", str(self._kept), str(self._at))

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()

    def _enter(self, number: int) -> tuple[str, ...]:
        return ("nsenter", f"--mount=/proc/{self._holders[number].pid}/ns/mnt")

    def _run(self, number: int, *words: str) -> None:
        subprocess.run([*self._enter(number), *words], check=True, capture_output=True, timeout=60)


@contextmanager
def server_mounts(root: Path) -> Iterator[ServerMounts | None]:
    """None where we may not mount."""
    try:
        for words in (("--bind", root, root), ("--make-shared", root)):
            subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    mounts = ServerMounts(root)
    try:
        yield mounts
    finally:
        mounts.close()
        subprocess.run(["umount", "--lazy", str(root)], check=True)
