import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as service_settings
from django.db import connection
from pytest_django import Settings
from rest_framework.test import APIClient
from service_lab import Lab

from cluster_app.acceptance import ACCEPTANCE
from engines.host import ensure_job_user, ensure_runtime
from scheduler_app import fleet
from scheduler_app.hosting import JOB_USER, SYSTEM_STATE

SHARED = ("stack", "demo", "machine", "arena", "replay", "browser")
"""What is dear to start: with several workers, tests that share one go to the same."""


def pytest_configure() -> None:
    """Who is started in the background by a script ignores Ctrl-C, and so would all that the tests start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = getattr(item, "fixturenames", ())
        shared = next((name for name in SHARED if name in names), None)
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared))


@pytest.fixture(scope="session")
def job_user() -> str:
    """The unprivileged user that jobs run as when we are root."""
    if os.geteuid() != 0:
        return ""
    ensure_job_user(JOB_USER)
    return JOB_USER


@pytest.fixture
def engine_root() -> Iterator[Path]:
    """A folder that the job's user can reach: pytest's own lie below a private one."""
    root = Path(tempfile.mkdtemp(prefix="motley-rules-", dir="/tmp"))
    root.chmod(0o711)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def lab(
    db: None, settings: Settings, engine_root: Path, job_user: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """An empty cluster with the real local engine; afterwards nothing of it is left.

    Its rounds last a second: on a busy machine some would run into their time limit, whose clock stands still here.
    """
    monkeypatch.setattr("allocation.deadline.now_s", lambda: 0.0)
    settings.MOTLEY_ENGINE_ROOT, settings.MOTLEY_JOB_USER, settings.MOTLEY_JOB_PATH = engine_root, job_user, ""
    fleet.engine_over.cache_clear()
    lab = Lab(engine_root)
    lab.policy()
    yield lab
    lab.end_everything()
    fleet.engine_over.cache_clear()


@pytest.fixture(scope="session")
def runtime(job_user: str) -> Path:
    """Where the Python is that jobs can run, with NumPy and the client."""
    if not job_user:
        return Path(sys.prefix) / "bin"
    SYSTEM_STATE.mkdir(mode=0o711, parents=True, exist_ok=True)
    base = service_settings.BASE_DIR
    own_uv = base / ".tools" / "bin" / "uv"
    uv = own_uv if own_uv.exists() else None
    return ensure_runtime(SYSTEM_STATE / "runtime", client=base / "client", user=job_user, uv=uv)


@pytest.fixture
def job_python(runtime: Path, lab: Lab, settings: Settings) -> Path:
    """Jobs find that Python as `python`."""
    settings.MOTLEY_JOB_PATH = str(runtime)
    return runtime


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite in a file, as in the service: threads that share one in memory do not wait for each other's locks."""
    if connection.vendor == "sqlite":
        connection.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / "motley.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def _static_folder() -> None:
    """A live server looks for it before a test could name another; a fresh clone has none."""
    Path(service_settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(autouse=True)
def _forgotten_cluster() -> None:
    """The nodes of the test before are not those of this one."""
    ACCEPTANCE.forget()


@pytest.fixture
def plain_static(settings: Settings, tmp_path: Path) -> None:
    """Pages need no `collectstatic`."""
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }


@pytest.fixture
def api(plain_static: None) -> APIClient:
    """A caller without a token."""
    return APIClient()
