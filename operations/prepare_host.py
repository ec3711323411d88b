"""Set-up of the machine that `serve` runs on: the static files, and the jobs' user, folder and Python."""

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

from engines.accounts import account_name, ensure_account, reachable_by
from engines.linux import sync
from engines.local.host_setup import ensure_runtime

JOB_USER = "motley-{team}"
SYSTEM_STATE = Path("/var/lib/motley")


@dataclass(frozen=True)
class Host:
    """Settings of the service's processes that depend on this machine."""

    engine_root: Path
    job_path: str
    job_user: str = ""
    """Account of jobs, one for each team if it contains "{team}"; those that are missing are created."""

    def environment(self) -> dict[str, str]:
        return {
            "MOTLEY_ENGINE_ROOT": str(self.engine_root),
            "MOTLEY_JOB_PATH": self.job_path,
            "MOTLEY_JOB_USER": self.job_user,
            **({"MOTLEY_CREATE_ACCOUNTS": "true"} if self.job_user else {}),
        }


def collect_static_files() -> None:
    """Collect and compress the static files. It takes seconds, and is done only if their sources have changed.

    Files that a power cut left half written are collected anew: the stamp is written when all others are on the disk.
    """
    stamp, sources = settings.STATIC_ROOT / "sources.sha256", _static_sources()
    if not stamp.exists() or stamp.read_text() != sources:
        shutil.rmtree(settings.STATIC_ROOT, ignore_errors=True)
        call_command("collectstatic", verbosity=0, interactive=False)
        for path in settings.STATIC_ROOT.rglob("*"):
            sync(path)
        stamp.write_text(sources)


def _static_sources() -> str:
    """SHA-256 of the paths, sizes and times of all static files."""
    paths = sorted(storage.path(name) for finder in get_finders() for name, storage in finder.list([]))
    files = [(path, (status := Path(path).stat()).st_size, status.st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(files).encode()).hexdigest()


def prepare_host() -> Host:
    """As root, create an account for jobs and a Python for it and those of teams; otherwise jobs run as this user with
    this Python."""
    if os.geteuid() != 0:
        return Host(settings.MOTLEY_ENGINE_ROOT, settings.MOTLEY_JOB_PATH or str(Path(sys.prefix) / "bin"))
    pattern = settings.MOTLEY_JOB_USER or JOB_USER
    user = account_name(pattern)
    ensure_account(user)
    return Host(_engine_root(user), settings.MOTLEY_JOB_PATH or str(_runtime(user)), pattern)


def _engine_root(user: str) -> Path:
    """Folder of the engine: below `var`, unless the jobs' user cannot reach it, as in root's home."""
    wanted: Path = settings.MOTLEY_ENGINE_ROOT
    if wanted.parent == settings.VAR_DIR:
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        settings.VAR_DIR.chmod(0o711)  # jobs must reach their own folders; the other files are mode 600
    wanted.mkdir(parents=True, exist_ok=True)
    wanted.chmod(0o711)
    if reachable_by(wanted, user):
        return wanted
    name = hashlib.sha256(str(settings.VAR_DIR).encode()).hexdigest()[:12]
    root = SYSTEM_STATE / f"engine-{name}"
    _make_passable(SYSTEM_STATE, root)
    return root


def _runtime(user: str) -> Path:
    _make_passable(SYSTEM_STATE)
    own_uv = settings.BASE_DIR / ".tools" / "bin" / "uv"
    client = settings.BASE_DIR / "client"
    return ensure_runtime(SYSTEM_STATE / "python", client=client, user=user, uv=own_uv if own_uv.exists() else None)


def _make_passable(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
