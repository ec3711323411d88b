"""Linux system calls that Python's standard library lacks, has for open files only or has one by one: prctl, OFD locks,
fsync, the user of a process."""

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_OFD_GETLK, F_OFD_SETLK, fcntl
from pathlib import Path
from struct import Struct
from typing import IO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_MS_BIND, _MS_REC, _MNT_DETACH = 4096, 16384, 2
_F_WRLCK, _F_UNLCK = 1, 2
OWN_FILE = 0o600
_FLOCK = Struct("hh4xqqi4x")  # struct flock: type, whence, start, length, pid
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int) -> None:
    """Receive this signal when the parent process dies (PR_SET_PDEATHSIG)."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def die_with(parent: int, signal_number: int) -> None:
    """Receive this signal when the parent, which has just started us, dies, even if it is dead already."""
    die_with_parent(signal_number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def become_subreaper() -> None:
    """Become a child subreaper: orphaned descendants become our children (PR_SET_CHILD_SUBREAPER)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Set no_new_privs: setuid programs grant no privileges to this process and its children."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def switch_to(user: list[int] | None) -> None:
    """Become this user (user id, group id, further groups) for good; None: stay who we are."""
    if user is not None:
        uid, gid, *groups = user
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


@contextmanager
def acting_as(user: list[int] | None) -> Iterator[None]:
    """With the rights of this user on files, of the service that is root; None: with our own."""
    if user is None:
        yield
        return
    uid, gid, *groups = user
    ours, our_group = os.getgroups(), os.getegid()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(our_group)
        os.setgroups(ours)


def enter_namespace(descriptor: int) -> None:
    """Move into the namespace of this descriptor (setns); of a PID namespace, our children do."""
    _check(_libc.setns(descriptor, 0))


def bind_mount(source: str, target: str) -> None:
    """Mount what `source` leads to, with what is mounted below it, at `target`; a descriptor's link is followed."""
    _check(_libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(_MS_BIND | _MS_REC), None))


def unmount(target: str) -> None:
    """Take a mount out of our mount namespace, now or when it is no longer in use."""
    _check(_libc.umount2(target.encode(), _MNT_DETACH))


def network_here() -> str:
    """Boot of the kernel and our network namespace: two processes with the same have one 127.0.0.1; empty: unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return ""


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0))


# OFD locks belong to an open file description, not to a process: a child that inherits the descriptor holds them, and
# a lock can be tested without taking it.


def lock(descriptor: int) -> bool:
    """Try to take the lock; False if another process holds it."""
    try:
        fcntl(descriptor, F_OFD_SETLK, _FLOCK.pack(_F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock on this file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl(descriptor, F_OFD_GETLK, _FLOCK.pack(_F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    return int(_FLOCK.unpack(answer)[0]) != _F_UNLCK


def own_file(path: Path) -> IO[str]:
    """File that its owner alone can open, and so lock, made if it is missing; to read and to append."""
    file = open(path, "a+", encoding="utf-8", opener=_open_as_own)  # noqa: SIM115 - pathlib knows no opener
    os.fchmod(file.fileno(), OWN_FILE)  # of one that an earlier version made
    return file


def _open_as_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, OWN_FILE)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, last through a power cut (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def process_space() -> str:
    """Our PID namespace on this machine since its boot: only processes in it are found by their number."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def seconds_since_boot() -> float:
    """Time that no step of the clock changes; it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
