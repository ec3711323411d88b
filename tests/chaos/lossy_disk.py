"""A disk that loses what was not synced, as in a power cut: ext4 on a file, shut down without writing its journal."""

import fcntl
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.private_servers import private_folder

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN of linux/fs/ext4: _IOR('X', 125, __u32)."""
WITHOUT_JOURNAL = struct.pack("=I", 2)
"""EXT4_GOING_FLAGS_NOLOGFLUSH."""
OPTIONS = "loop,commit=60"
"""Nothing is committed by the journal's own clock in the time between two faults."""

MARGIN_BYTES = 1 << 20
"""What is written by hand when the rest of a disk has been taken at once."""


class LossyDisk:
    """One that is mounted; `path` is its root."""

    def __init__(self, image: Path, path: Path) -> None:
        self.image, self.path = image, path

    def mount(self) -> None:
        subprocess.run(["mount", "-o", OPTIONS, str(self.image), str(self.path)], check=True, capture_output=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def lose_unsynced(self) -> None:
        """Go on with a copy of what is on the disk: a mount namespace of some job elsewhere may hold the old one."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_JOURNAL)
        finally:
            os.close(descriptor)
        self.unmount()
        copy = self.image.with_name(f"{self.image.name}+")
        subprocess.run(["cp", "--sparse=always", str(self.image), str(copy)], check=True)
        copy.replace(self.image)
        self.mount()


class DiskFiller:
    """Takes all space of a disk for a while, one at a time."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._done = threading.Event()

    @property
    def is_at_work(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, folder: Path, seconds: float) -> bool:
        if self.is_at_work:
            return False
        self._done.clear()
        self._thread = threading.Thread(target=self._fill, args=(folder / "filler", seconds), daemon=True)
        self._thread.start()
        return True

    def end(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _fill(self, path: Path, seconds: float) -> None:
        until = time.monotonic() + seconds
        with path.open("wb", buffering=0) as file:
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(path.parent).free - MARGIN_BYTES)
            file.seek(0, os.SEEK_END)
            while time.monotonic() < until and not self._done.is_set():
                try:
                    file.write(bytes(2**12))
                except OSError:
                    time.sleep(0.05)
        path.unlink()


@contextmanager
def lossy_disk(folder: Path, *, mib: int) -> Iterator[LossyDisk | None]:
    """Mounted at the folder; None where we may not mount, and the folder is used as it is."""
    with private_folder("motley-image-") as beside, ExitStack() as at_the_end:
        disk: LossyDisk | None = LossyDisk(beside / "image", folder)
        with disk.image.open("wb") as file:
            file.truncate(mib * 2**20)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk.image)], check=True, capture_output=True)
            disk.mount()
            at_the_end.callback(disk.unmount)
        except (OSError, subprocess.CalledProcessError):
            disk = None
        folder.chmod(0o711)  # jobs of another user pass through
        yield disk
