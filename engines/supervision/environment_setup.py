"""Environment of a job: made once by its setup command, shared by jobs with the same key, removed when unused.

Its folder has `env`, which belongs to the job's user, and files of the service. Whoever makes it holds an exclusive
lock; whoever uses it holds a shared one until its rank has ended, wherever on the shared folder that is. What is to be
removed is first renamed, so that no content can hinder a new environment.
"""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum, auto
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from threading import Thread

from engines.attempt_files import SetupFile, write_whole
from engines.masked_log import CappedLog, MaskedLog

UNUSED_AFTER_S = 30 * 24 * 3600.0
READ_BYTES = 64 * 1024
ASIDE = "removed-"
REMOVE = 'chmod -R u+rwX -- "$1"; exec rm -rf --one-file-system -- "$1"'
"""Neither has a limit of depth; the first is for folders that their owner may not write, as those of conda packages."""


class Entry(Enum):
    """Outcome of one try to enter an environment."""

    READY = auto()
    EMPTY = auto()
    """It is the caller's to make; others wait."""
    BUSY = auto()


class Environment:
    """The environment in `folder`, which exists."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._content = self._folder / "env"
        self._complete = self._folder / "complete"
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def enter(self) -> Entry:
        """Try to enter; the lock is held until this process ends, unless the environment is busy.

        A shared lock is never made exclusive: on NFS a failure would keep it, and two of them would wait for ever.
        """
        complete = self._complete.exists()
        with suppress(BlockingIOError):
            flock(self._lock, (LOCK_SH if complete else LOCK_EX) | LOCK_NB)
            if self._complete.exists() == complete:  # it may have been made or removed before the lock was taken
                os.utime(self._lock)
                return Entry.READY if complete else Entry.EMPTY
        flock(self._lock, LOCK_UN)
        return Entry.BUSY

    def made_by(self) -> str:
        return self._complete.read_text()

    def clear(self, user: list[int] | None) -> None:
        """Empty the environment, because an interrupted setup may have left it incomplete."""
        _set_aside(self._content)
        self._content.mkdir(mode=0o755)
        if user is not None:
            os.chown(self._content, user[0], user[1])

    def removals(self) -> Iterator[int]:
        """Remove what was set aside and the environments that nobody has used lately, each by a process group that the
        caller waits for. A failure is left to the next setup."""
        environments = self._folder.parent
        with suppress(OSError):
            for lock in list(environments.glob("*/lock")):
                _set_aside_unused(lock)
            for rest in list(environments.glob(f"*/{ASIDE}*")):
                yield from _remove(rest)

    def finish(self, made_by: str) -> None:
        """Release the environment to other ranks."""
        write_whole(self._complete, made_by)
        flock(self._lock, LOCK_SH)


def copy_output(pipe: int, setup: SetupFile, masked: Iterable[str]) -> Thread:
    """Start to copy the setup's output to its log, until no process holds the other end of the pipe."""
    log = MaskedLog(CappedLog(Path(setup["log"]), limit_bytes=setup["log_limit_bytes"]), masked)
    copying = Thread(target=_copy, args=(pipe, log), daemon=True)
    copying.start()
    return copying


def _copy(pipe: int, log: MaskedLog) -> None:
    while data := os.read(pipe, READ_BYTES):
        log.write(data)
    os.close(pipe)
    log.close()


def _set_aside_unused(lock: Path) -> None:
    """Set aside an environment that no rank uses. The lock file stays, so that no two locks are about one folder."""
    with suppress(OSError):  # it is locked, or another setup was faster
        if not _is_unused(lock):
            return
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            if _is_unused(descriptor):  # a rank may have come and gone since the first look
                (lock.parent / "complete").unlink(missing_ok=True)
                _set_aside(lock.parent / "env")
        finally:
            os.close(descriptor)


def _is_unused(lock: Path | int) -> bool:
    return time.time() - os.stat(lock).st_mtime > UNUSED_AFTER_S  # noqa: PTH116 - a descriptor is no path


def _set_aside(content: Path) -> None:
    with suppress(FileNotFoundError):
        content.rename(content.with_name(f"{ASIDE}{time.time_ns()}"))


def _remove(rest: Path) -> Iterator[int]:
    """Remove a folder as its owner: root must not follow what a job changes meanwhile, and may be nobody on NFS."""
    with suppress(OSError):
        owner = rest.lstat()
        removal = subprocess.Popen(  # noqa: S603 - our own words
            ["/bin/sh", "-c", REMOVE, "sh", rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **({"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
        )
        yield removal.pid
        removal.poll()  # the caller has reaped it
        rest.rmdir()  # which is the service's to do, as the owner of the folder above
