"""The client as a wheel, in an environment that knows nothing of the service."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from django.conf import settings
from pytest_django.live_server_helper import LiveServer

from operations.client_wheel import client_wheel, wheel_name
from tests.simulation.test_shadow import busy_month

ROOT = Path(__file__).resolve().parents[2]
UV = next((str(uv) for uv in [ROOT / ".tools" / "bin" / "uv"] if uv.exists()), shutil.which("uv"))
TRAINING = """
import os, sys
assert "httpx" not in sys.modules
from motley_client.training import checkpoint_dir, progress, resume, should_stop
progress(1, loss=0.5)
print(should_stop(), resume(), checkpoint_dir())
"""


def uv(*words: str, cwd: Path) -> None:
    assert UV is not None, "uv is missing: bootstrap.sh brings it"
    settings = {"UV_SYSTEM_CERTS": "1", "UV_NO_PROGRESS": "1", "UV_LINK_MODE": "copy"}
    done = subprocess.run([UV, *words], cwd=cwd, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(command: list[str], cwd: Path) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "MOTLEY_PROGRESS": "progress.jsonl"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT / "client"), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A virtual environment without anything in it."""
    uv("venv", "--quiet", "--python", sys.executable, "fresh", cwd=tmp_path)
    yield tmp_path / "fresh" / "bin"
    shutil.rmtree(tmp_path / "fresh")


def test_the_command_needs_nothing_of_the_service(wheel: Path, fresh: Path, tmp_path: Path) -> None:
    uv("pip", "install", "--quiet", "--python", str(fresh / "python"), str(wheel), cwd=tmp_path)
    assert run([str(fresh / "motley"), "version"], tmp_path) == f"motley {settings.MOTLEY_VERSION}\n"
    assert "Usage: motley" in run([str(fresh / "motley"), "--help"], tmp_path)
    run([str(fresh / "python"), "-c", "from motley_client import Client"], tmp_path)
    assert "django" not in run([str(fresh / "python"), "-c", "help('modules')"], tmp_path)
    simulate = subprocess.run(
        [fresh / "motley", "simulate", "run", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (simulate.returncode, simulate.stdout) == (2, "")
    assert "pip install 'motley-client[simulator]'" in simulate.stderr


def test_slurms_accounting_is_replayed_by_what_pip_installs_alone(wheel: Path, fresh: Path, tmp_path: Path) -> None:
    needed = f"motley-client[simulator] @ {wheel.as_uri()}"
    uv("pip", "install", "--quiet", "--python", str(fresh / "python"), needed, cwd=tmp_path)
    (tmp_path / "sacct.txt").write_text(busy_month(10))
    run([str(fresh / "motley"), "shadow", "import", "sacct.txt", "--policy", "fifo", "--policy", "qssf"], tmp_path)
    page = (tmp_path / "shadow" / "shadow.html").read_text()
    assert "10 jobs of Slurm under other policies" in page
    assert "motley shadow import sacct.txt" in page
    assert "django" not in run([str(fresh / "python"), "-c", "help('modules')"], tmp_path)


def test_the_extra_of_the_simulator_has_every_library_that_its_packages_import() -> None:
    """Of the versions that the service has; scikit-learn is that of forecasts, which simulate nothing."""
    client, service = (
        tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"] for path in ("client", "")
    )
    there = {*client["dependencies"], *client["optional-dependencies"]["simulator"]}
    assert set(client["optional-dependencies"]["simulator"]) <= set(service["dependencies"])
    names = {re.split(r"[\[<>=]", one)[0].removeprefix("python-") for one in there}
    assert _imported("allocation", "estimation", "simulation") - {"sklearn", "threadpoolctl"} <= names | {"yaml"}


def _imported(*packages: str) -> set[str]:
    """Libraries that modules of these packages import, anywhere in them."""
    trees = [ast.parse(path.read_text()) for package in packages for path in (ROOT / package).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in names} - set(packages) - sys.stdlib_module_names


def test_the_training_helper_needs_nothing_at_all(wheel: Path, fresh: Path, tmp_path: Path) -> None:
    uv("pip", "install", "--quiet", "--no-deps", "--python", str(fresh / "python"), str(wheel), cwd=tmp_path)
    assert run([str(fresh / "python"), "-c", TRAINING], tmp_path) == "False False checkpoints\n"
    assert '"loss": 0.5' in (tmp_path / "progress.jsonl").read_text()


def test_the_wheel_that_the_service_serves_installs_the_command(
    live_server: LiveServer, fresh: Path, tmp_path: Path
) -> None:
    address = f"{live_server.url}/client/{wheel_name()}"
    uv("pip", "install", "--quiet", "--python", str(fresh / "python"), address, cwd=tmp_path)
    assert run([str(fresh / "motley"), "version"], tmp_path) == f"motley {settings.MOTLEY_VERSION}\n"
    assert run([str(fresh / "python"), "-c", TRAINING], tmp_path) == "False False checkpoints\n"
    without = subprocess.run([fresh / "motley", "mcp"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (without.returncode, "pip install 'motley-client[mcp]'" in without.stderr) == (2, True)


def test_the_served_wheel_installs_with_the_protocol_of_assistants(
    live_server: LiveServer, fresh: Path, tmp_path: Path
) -> None:
    needed = f"motley-client[mcp] @ {live_server.url}/client/{wheel_name()}"
    uv("pip", "install", "--quiet", "--python", str(fresh / "python"), needed, cwd=tmp_path)
    run([str(fresh / "python"), "-c", "import motley_command.mcp_server"], tmp_path)


def test_the_wheel_that_the_service_serves_is_the_one_that_would_be_built(wheel: Path) -> None:
    built, served = ZipFile(wheel), ZipFile(BytesIO(client_wheel()))
    assert set(served.namelist()) == set(built.namelist())
    needs, offered = (_needs(archive) for archive in (built, served))
    assert offered == needs
    assert (served.testzip(), wheel.name) == (None, wheel_name())


def _needs(archive: ZipFile) -> set[str]:
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    lines = [line.replace('"', "'") for line in metadata.splitlines()]
    return {line for line in lines if line.startswith(("Requires-", "Provides-Extra", "Name:", "Version:"))}
