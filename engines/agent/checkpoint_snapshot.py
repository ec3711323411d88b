"""Snapshot of a running job's checkpoints by hard links, without unfinished files.

A file that the job replaces keeps its content in the snapshot. One that it writes in place changes there too, and is
found by its size and time.
"""

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

UNFINISHED = (".partial", ".tmp")
"""Ends of names that are still to be changed: `motley_client.training` and others write beside the file."""

NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)
CHANGED_MEANWHILE = 1
"""Exit status of GNU tar where files changed while it read them."""


class NotPacked(Exception):
    """The archive could not be made; the text is GNU tar's message."""


class NotLinked(Exception):
    """This machine lets the agent make no hard links to the job's files."""


class Stamp(NamedTuple):
    """Identity of a file's content: changed content has another stamp."""

    inode: int
    modified_ns: int
    size: int


Stamps = dict[str, Stamp]
"""By the file's path in its folder."""


class FoundFile(NamedTuple):
    """A file in a folder that is open."""

    folder: int
    name: str
    path: str
    stamp: Stamp


def stamps_of(folder: Path, *, but: tuple[str, ...] = UNFINISHED) -> Stamps:
    """Stamps of the files below the folder, except names with this ending; empty if there is no folder."""
    return {found.path: found.stamp for found in _files(folder, but)}


def take_snapshot(folder: Path, snapshot: Path) -> Stamps:
    """Link the finished files into a new folder, and return their stamps: empty if they changed meanwhile.

    The job's account may replace a folder by a link at any moment: folders are opened one below the other, and no link
    is followed.
    """
    remove_snapshot(snapshot)
    snapshot.mkdir(mode=0o700, parents=True)
    linked: Stamps = {}
    for found in _files(folder, UNFINISHED):
        target = snapshot / found.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            _link(found, target)
            linked[found.path] = found.stamp
    return linked if linked == stamps_of(folder) == stamps_of(snapshot) else {}


def _link(found: FoundFile, target: Path) -> None:
    try:
        os.link(found.name, target, src_dir_fd=found.folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in NO_LINKS:
            raise NotLinked(f"no hard link to {found.path} can be made in {target.parent}: {error.strerror}") from error
        raise


def drop_changed(snapshot: Path, stamps: Mapping[str, Stamp]) -> Stamps:
    """Remove files from the snapshot whose content has changed since, and return the stamps of the others."""
    now = stamps_of(snapshot)
    for path in stamps:
        if now.get(path) != stamps[path]:
            (snapshot / path).unlink(missing_ok=True)
    return {path: stamp for path, stamp in stamps.items() if now.get(path) == stamp}


def remove_snapshot(snapshot: Path) -> None:
    shutil.rmtree(snapshot, ignore_errors=True)


def pack(folder: Path, archive: Path) -> None:
    """Pack the content of a folder by GNU tar, links as links, without other file systems.

    A file whose link count changes meanwhile, as by a replacement of the name that the job has for it, is a change to
    GNU tar: the caller compares contents. Raises `NotPacked` on any other error.
    """
    done = subprocess.run(  # noqa: S603 - our own words and paths
        [
            "/bin/tar",
            "--create",
            "--one-file-system",
            f"--file={archive}",
            "--use-compress-program=gzip -1",
            "-C",
            folder,
            ".",
        ],
        check=False,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        stderr=subprocess.PIPE,
    )
    if done.returncode not in (0, CHANGED_MEANWHILE):
        raise NotPacked(done.stderr.decode(errors="replace").strip()[-500:])


def _files(folder: Path, but: tuple[str, ...]) -> Iterator[FoundFile]:
    """Files and symbolic links below the folder, on its file system, except names with this ending."""
    try:
        device = folder.stat(follow_symlinks=False).st_dev
    except FileNotFoundError:
        return
    for top, folders, names, descriptor in os.fwalk(folder):
        folders[:] = [name for name in folders if not name.endswith(but)]
        for name in sorted((*folders, *names)):
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                is_file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
                if is_file and status.st_dev == device and not name.endswith(but):
                    path = str((Path(top) / name).relative_to(folder))
                    stamp = Stamp(status.st_ino, status.st_mtime_ns, status.st_size)
                    yield FoundFile(descriptor, name, path, stamp)
