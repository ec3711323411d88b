"""The engine's own tests once more, by a service that is not root."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from engines.accounts import reachable_by
from engines.local.host_setup import SYSTEM_PYTHON

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
MODULES = (Path("operations/__init__.py"), Path("operations/private_slurm.py"))
"""What the tests' lab imports, beside the package `engines`."""
PYTEST = Path(pytest.__file__).parent.parent
TESTS = ("engine_lab.py", "conftest.py", *(path.name for path in HERE.glob("test_engine_*.py")))

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have run as an ordinary user already"),
    pytest.mark.skipif(
        not SYSTEM_PYTHON.exists() and os.environ.get("CI") != "true", reason=f"no {SYSTEM_PYTHON}: install python3"
    ),
    pytest.mark.skipif(not reachable_by(PYTEST, "nobody"), reason="the user nobody cannot reach pytest"),
]


def test_an_ordinary_user_runs_and_stops_jobs(place: Path) -> None:
    """Those of the contract that run under every isolation."""
    run_as_nobody(place, "-m", "every_isolation")


@pytest.mark.thorough
def test_an_ordinary_user_can_do_all_the_same(place: Path) -> None:
    """In a user namespace, where it may make one: what a subreaper does has been tried as root."""
    run_as_nobody(place)


def run_as_nobody(place: Path, *chosen: str) -> None:
    shutil.copytree(PROJECT / "engines", place / "engines", ignore=shutil.ignore_patterns("__pycache__"))
    tests, operations = place / "tests" / "engines", place / "operations"
    tests.mkdir(parents=True)
    operations.mkdir()
    for name in TESTS:
        shutil.copy(HERE / name, tests)
    for module in MODULES:
        shutil.copy(PROJECT / module, operations)
    for folder in (tests.parent, tests, operations):
        folder.chmod(0o755)  # whatever the umask
    done = subprocess.run(
        [
            *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
            *(SYSTEM_PYTHON, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-c", "/dev/null"),
            *("--import-mode=importlib", "--rootdir", place, *chosen, "tests"),
        ],
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "MOTLEY_TEST_SLURM": "none",
            "MOTLEY_TEST_ISOLATION": "",
            "PYTHONPATH": f"{place}:{PYTEST}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
