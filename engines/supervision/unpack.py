"""Unpacking of a job's code into its working folder, and of its checkpoints, as the job's user, by GNU tar."""

import errno
import os
import subprocess
from pathlib import Path
from time import monotonic

from engines.attempt_files import CodeFile, LaunchFile, write_whole

TAR = "/bin/tar"
LONGEST_COMPLAINT = 500
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE)
"""Errors that the same archive would not meet on another node, or later."""
WRITE_AND_ENTER = 0o300
"""Permissions of a folder's owner."""


class CodeNotUnpacked(Exception):
    """Code or checkpoints could not be unpacked; `node_failed`: because of the disk, not of the archive."""

    def __init__(self, message: str, *, node_failed: bool) -> None:
        super().__init__(message)
        self.node_failed = node_failed


def unpack_code(launch: LaunchFile) -> float | None:
    """Unpack the code and the checkpoints of the launch, if it has some; an interrupted unpacking is repeated.

    Return the seconds that this took, and before it the fetching of the archives; None: there was nothing to do.
    tar keeps to its folder: it takes no leading slash and no "..", and follows no link that it has made itself.
    """
    took_s, began_s = launch.get("fetched_s"), monotonic()
    for what, code in (("code", launch.get("code")), ("checkpoints", launch.get("checkpoints"))):
        if code is not None and not Path(code["done"]).exists():
            _unpack(what, code, launch["user"])
            took_s = launch.get("fetched_s", 0.0) + monotonic() - began_s
    return took_s


def _unpack(what: str, code: CodeFile, user: list[int] | None) -> None:
    may_write = _may_write(Path(code["folder"]), user)
    try:
        _run_tar(code, user)
    except (OSError, subprocess.CalledProcessError) as error:
        message = f"The {what} could not be unpacked into {code['folder']}: {_describe(error)}"
        # What went wrong with an archive of checkpoints is no failure of the job: it did not make the archive.
        raise CodeNotUnpacked(
            message, node_failed=what == "checkpoints" or _is_of_the_node(error, may_write)
        ) from error
    write_whole(Path(code["done"]), "")
    Path(code["archive"]).unlink(missing_ok=True)


def _run_tar(code: CodeFile, user: list[int] | None) -> None:
    """Give tar the archive on its standard input: the job's user may not read it."""
    with Path(code["archive"]).open("rb") as archive:
        subprocess.run(  # noqa: S603 - our own words
            [TAR, "--extract", "--gzip", "--no-same-owner", "--no-same-permissions", "-C", code["folder"]],
            stdin=archive,
            capture_output=True,
            text=True,
            errors="replace",
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            umask=0o022,
            check=True,
            **({"user": user[0], "group": user[1], "extra_groups": user[2:]} if user is not None else {}),  # type: ignore[call-overload]
        )


def _may_write(folder: Path, user: list[int] | None) -> bool:
    """Whether the folder lets the user write: what tar may not then write is in a folder that the archive made."""
    if user is None:
        return os.access(folder, os.W_OK | os.X_OK)
    found = folder.stat() if folder.exists() else None
    return found is not None and found.st_uid == user[0] and found.st_mode & WRITE_AND_ENTER == WRITE_AND_ENTER


def _is_of_the_node(error: OSError | subprocess.CalledProcessError, may_write: bool) -> bool:
    if isinstance(error, OSError) or error.returncode < 0:  # the archive is not there, or tar was killed
        return True
    numbers = DISK_ERRORS if may_write else (*DISK_ERRORS, errno.EACCES)
    endings = tuple(f": {os.strerror(number)}" for number in numbers)
    return any(line.endswith(endings) for line in str(error.stderr).splitlines())


def _describe(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr).strip()[:LONGEST_COMPLAINT] or f"tar exited with {error.returncode}"
    return str(error)
