"""Host set-up for a service that runs as root: the user of jobs, and a Python that this user can execute."""

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engines.protocol import EngineError

USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
SYSTEM_PYTHON = Path("/usr/bin/python3")
THROUGH = 0o711
UNUSED_AFTER_S = 60 * 24 * 3600.0
"""Time after which an environment is removed: longer than a job of an older version runs."""


def ensure_job_user(name: str) -> None:
    """Create the system user of jobs, without home and login, if it does not exist."""
    if _exists(name):
        return
    if not USER_NAME.fullmatch(name):
        raise EngineError(f"{name!r} is not a valid user name: use lower-case letters, digits, - and _.")
    options = ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent")
    try:
        _run(["useradd", *options, "--shell", "/usr/sbin/nologin", name])
    except EngineError as error:
        if not _exists(name):  # created by another process meanwhile
            raise EngineError(f"The user {name} could not be created: create it by hand. {error}") from error


def reachable_by(path: Path, user: str) -> bool:
    """Whether the user, with only its own group, may traverse every folder on this path and enter it."""
    account = pwd.getpwnam(user)
    return all(_may_enter(place, account) for place in _on_the_way(path.absolute()))


def account_of_jobs(name: str | None) -> pwd.struct_passwd | None:
    """Account that jobs run as; None keeps that of the service, which only root can change."""
    if name is None or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise EngineError(f"There is no user {name} on this machine: create it, or configure another.") from None


def refuse_unreachable(root: Path, account: pwd.struct_passwd | None) -> None:
    """Raise `EngineError` if the account of jobs cannot reach the engine's folder."""
    if account is not None and not reachable_by(root, account.pw_name):
        raise EngineError(
            f"The user {account.pw_name} cannot reach {root}: choose a folder outside private ones, such as "
            "/var/lib/motley, or let others pass through (chmod o+x)."
        )


def ensure_runtime(folder: Path, *, client: Path, user: str, uv: Path | None = None) -> Path:
    """Folder `bin` of a Python that the user can execute, with NumPy and the client from `client`.

    Our own Python if the user can reach it, else a virtual environment of the system's Python below `folder`: one for
    each version of the client, since jobs of the version before an upgrade still run in theirs.
    """
    if _own_python_serves(user, client):
        return Path(sys.prefix) / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(THROUGH)  # independent of the umask
    target = folder / _fingerprint(client)[:16]
    with _one_at_a_time(folder / "lock"):
        complete = target / "complete"
        if not complete.exists():
            _make_runtime(target, client=client, uv=uv)
        complete.touch()
        _remove_unused(folder)
    return target / "bin"


def _remove_unused(folder: Path) -> None:
    """Remove the environments that no service has asked for lately."""
    for complete in folder.glob("*/complete"):
        if time.time() - complete.stat().st_mtime > UNUSED_AFTER_S:
            shutil.rmtree(complete.parent, ignore_errors=True)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _on_the_way(path: Path) -> Iterator[Path]:
    """Every path that the kernel resolves: a link may lead through a private folder to a public file."""
    if path != path.parent:
        yield from _on_the_way(path.parent)
    yield path  # before its target: in a cycle of links the first one is refused already
    if os.path.islink(path):  # noqa: PTH114 - Path.is_symlink raises where we may not look
        yield from _on_the_way(path.parent / path.readlink())


def _may_enter(place: Path, account: pwd.struct_passwd) -> bool:
    if account.pw_uid == 0:
        return place.exists()
    try:
        status = place.stat()
    except OSError:
        return False
    if status.st_uid == account.pw_uid:
        needed = stat.S_IXUSR
    elif status.st_gid == account.pw_gid:
        needed = stat.S_IXGRP
    else:
        needed = stat.S_IXOTH
    return bool(status.st_mode & needed)


def _own_python_serves(user: str, client: Path) -> bool:
    """Whether the user can reach our Python and the client: either may be a link into a private home."""
    places = (Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable), client)
    return all(reachable_by(place, user) for place in places)


def _make_runtime(target: Path, *, client: Path, uv: Path | None) -> None:
    uv_program = str(uv) if uv is not None else shutil.which("uv")
    python, package = str(target / "bin" / "python"), f"{client}[sample]"
    if uv_program is not None:
        make = [uv_program, "venv", "--allow-existing", "--python", str(SYSTEM_PYTHON), str(target)]
        install = [uv_program, "pip", "install", "--python", python, "--refresh-package", "motley-client", package]
    else:
        make = [str(SYSTEM_PYTHON), "-m", "venv", str(target)]
        install = [python, "-m", "pip", "install", "--quiet", package]
    try:
        _run(make)
        _run(install)
    except EngineError as error:
        raise EngineError(
            f"The Python for jobs could not be installed in {target}: install uv, or the packages python3-venv and "
            f"python3-pip, and check that this machine reaches a package index. {error}"
        ) from error


def _fingerprint(client: Path) -> str:
    """SHA-256 of the client's sources."""
    digest = hashlib.sha256()
    for path in sorted([client / "pyproject.toml", *client.rglob("*.py")]):
        digest.update(f"{path.relative_to(client)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - words of ours and paths of the administrator's, through no shell
            command, capture_output=True, text=True, check=False, umask=0o022, env=_public_environment()
        )
    except OSError as error:
        raise EngineError(f"{command[0]} could not be run: {error.strerror}.") from error
    if done.returncode != 0:
        raise EngineError(f"{command[0]} said: {(done.stderr or done.stdout).strip()[-1000:]}")


def _public_environment() -> dict[str, str]:
    """Our environment without what points to our virtual environment; uv uses the system's certificates."""
    misleading = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in misleading} | {"UV_NATIVE_TLS": "true"}
