"""The machine that `serve` runs on: who jobs run as, where their files are, and which Python they find."""

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from engines.host import ensure_job_user, ensure_runtime, reachable_by

JOB_USER = "motley-job"
SYSTEM_STATE = Path("/var/lib/motley")


@dataclass(frozen=True)
class Host:
    """Settings for the processes of the service on this machine."""

    engine_root: Path
    job_path: str
    job_user: str = ""

    def environment(self) -> dict[str, str]:
        return {
            "MOTLEY_ENGINE_ROOT": str(self.engine_root),
            "MOTLEY_JOB_PATH": self.job_path,
            "MOTLEY_JOB_USER": self.job_user,
        }


def prepare_host() -> Host:
    """As root, a user for jobs and a Python that it can run; else jobs run as we do, with our own Python."""
    if os.geteuid() != 0:
        return Host(settings.MOTLEY_ENGINE_ROOT, settings.MOTLEY_JOB_PATH or str(Path(sys.prefix) / "bin"))
    user = settings.MOTLEY_JOB_USER or JOB_USER
    ensure_job_user(user)
    return Host(_engine_root(user), settings.MOTLEY_JOB_PATH or str(_runtime(user)), user)


def _engine_root(user: str) -> Path:
    """Below `var`, unless the job's user cannot get there, as when the project lies in root's home."""
    wanted: Path = settings.MOTLEY_ENGINE_ROOT
    if wanted.parent == settings.VAR_DIR:
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        settings.VAR_DIR.chmod(0o711)  # jobs pass through to their own folders; the files beside are 600
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
    return ensure_runtime(SYSTEM_STATE / "runtime", client=client, user=user, uv=own_uv if own_uv.exists() else None)


def _make_passable(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
