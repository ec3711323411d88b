"""Host set-up for a service that runs as root: a Python that the accounts of jobs can execute."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engines.accounts import reachable_by
from engines.linux import own_file
from engines.protocol import EngineError

SYSTEM_PYTHON = Path("/usr/bin/python3")
THROUGH = 0o711
UNUSED_AFTER_S = 60 * 24 * 3600.0
"""Time after which an environment is removed: longer than a job of an older version runs."""


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
    # Folder by folder: `motley_command` is a link, which rglob follows only where it begins.
    modules = (path for folder in client.iterdir() for path in folder.rglob("*.py"))
    for path in sorted([client / "pyproject.toml", *client.glob("*.py"), *modules]):
        digest.update(f"{path.relative_to(client)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with own_file(path) as file:
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
