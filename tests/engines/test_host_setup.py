"""Preparing a machine; what changes the machine itself is tried only where we are root."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from engines.accounts import ensure_account, reachable_by
from engines.local.host_setup import ensure_runtime
from engines.protocol import EngineError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


def run_as_nobody(*command: str) -> "subprocess.CompletedProcess[str]":
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    return subprocess.run([*as_nobody, *command], cwd="/", env={}, capture_output=True, text=True, check=False)


LOCKED = """
import sys
from pathlib import Path
from engines.agent.__main__ import _only_one
file = _only_one(Path(sys.argv[1]))
print("mine", flush=True)
"""


@as_root
@pytest.mark.parametrize("left", [False, True])
def test_a_job_that_passes_the_folder_of_an_agent_cannot_keep_it_from_starting(place: Path, left: bool) -> None:
    """By a lock on its lock file, which an earlier version has left for all to read."""
    place.chmod(0o711)
    if left:
        (place / "agent.lock").touch()
        (place / "agent.lock").chmod(0o644)
    start = [sys.executable, "-c", LOCKED, str(place)]
    assert subprocess.run(start, capture_output=True, text=True, check=False, umask=0o022).stdout == "mine\n"
    held = run_as_nobody("/usr/bin/flock", "--shared", "--nonblock", str(place / "agent.lock"), "echo", "locked")
    assert "locked" not in held.stdout
    assert "Permission denied" in held.stderr


@pytest.fixture
def name() -> Iterator[str]:
    name = f"motley-{uuid4().hex[:8]}"
    yield name
    subprocess.run(["userdel", name], check=False, capture_output=True)


@as_root
def test_the_job_user_is_made_without_a_login_and_once(name: str) -> None:
    ensure_account(name)
    ensure_account(name)
    assert pwd.getpwnam(name).pw_shell == "/usr/sbin/nologin"


@pytest.mark.parametrize("name", ["--root", "a b", "", "Über"])
def test_a_word_that_is_no_user_name_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="not a valid user name"):
        ensure_account(name)


def test_an_open_folder_is_reachable(place: Path) -> None:
    assert reachable_by(place, "nobody")


def test_a_folder_below_a_private_one_is_not_reachable(place: Path) -> None:
    (place / "closed" / "open").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    assert not reachable_by(place / "closed" / "open", "nobody")


def test_a_link_into_a_private_folder_is_not_reachable(place: Path) -> None:
    (place / "closed").mkdir(0o700)
    (place / "link").symlink_to(place / "closed")
    assert not reachable_by(place / "link", "nobody")


def test_a_link_through_a_private_folder_to_an_open_one_is_not_reachable(place: Path) -> None:
    """As of a virtual environment to the Python of root's pyenv, itself a link to the system's."""
    (place / "closed").mkdir(0o700)
    (place / "open").mkdir()
    (place / "open").chmod(0o755)
    (place / "closed" / "link").symlink_to(place / "open")
    (place / "link").symlink_to("closed/link")
    assert not reachable_by(place / "link", "nobody")


def test_links_in_a_circle_are_not_reachable(place: Path) -> None:
    (place / "there").symlink_to("back")
    (place / "back").symlink_to("there")
    assert not reachable_by(place / "there", "nobody")


def test_a_folder_that_is_not_there_is_not_reachable(place: Path) -> None:
    assert not reachable_by(place / "nothing", "nobody")


@pytest.fixture
def client(place: Path) -> Path:
    """A package with the client's name, and nothing to fetch. Its modules are behind a link, as the command's."""
    sources = place / "client"
    sources.mkdir()
    (place / "motley_client").mkdir()
    (sources / "motley_client").symlink_to("../motley_client")
    (sources / "motley_client" / "__init__.py").write_text("VERSION = 1\n")
    (sources / "pyproject.toml").write_text(PYPROJECT)
    (sources / "backend.py").write_text(BACKEND)
    return sources


def test_our_own_python_serves_a_user_who_can_reach_it(place: Path, client: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert ensure_runtime(place / "runtime", client=client, user=me) == Path(sys.prefix) / "bin"


@pytest.fixture
def closed_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ours is to others behind a link below a private home."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a Python to another user")
    (place / "closed").mkdir(0o700)
    (place / "closed" / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(place / "closed" / "python3"))


@pytest.mark.usefixtures("closed_python")
def test_a_python_is_made_for_a_user_who_cannot_reach_ours(place: Path, client: Path) -> None:
    bin_folder = ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    script = "import motley_client; print(motley_client.VERSION)"
    assert run_as_nobody(str(bin_folder / "python"), "-c", script).stdout == "1\n"


@pytest.mark.usefixtures("closed_python")
def test_a_python_that_was_made_is_kept(place: Path, client: Path) -> None:
    (place / "runtime").mkdir()
    (place / "runtime" / "lock").touch()
    (place / "runtime" / "lock").chmod(0o644)  # as an earlier version did
    bin_folder = ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    assert ensure_runtime(place / "runtime", client=client, user="nobody", uv=Path("/no/such/uv")) == bin_folder
    # A job that could open the lock could make the service wait for ever.
    assert stat.S_IMODE((place / "runtime" / "lock").stat().st_mode) == 0o600


@pytest.mark.usefixtures("closed_python")
def test_another_version_of_the_client_has_a_python_of_its_own(place: Path, client: Path) -> None:
    before = ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    (client / "motley_client" / "__init__.py").write_text("VERSION = 22\n")
    bin_folder = ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    script = "import motley_client; print(motley_client.VERSION)"
    assert run_as_nobody(str(bin_folder / "python"), "-c", script).stdout == "22\n"
    assert run_as_nobody(str(before / "python"), "-c", script).stdout == "1\n"


@pytest.mark.usefixtures("closed_python")
def test_a_python_that_no_service_has_asked_for_in_months_is_removed(place: Path, client: Path) -> None:
    before = ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    os.utime(before.parent / "complete", (0, 0))
    (client / "motley_client" / "__init__.py").write_text("VERSION = 22\n")
    ensure_runtime(place / "runtime", client=client, user="nobody", uv=uv())
    assert not before.exists()


@pytest.mark.usefixtures("closed_python")
def test_a_python_that_cannot_be_made_names_the_remedy(place: Path, client: Path) -> None:
    with pytest.raises(EngineError, match="install uv"):
        ensure_runtime(place / "runtime", client=client, user="nobody", uv=Path("/no/such/uv"))


def uv() -> Path:
    for found in (shutil.which("uv"), ROOT / ".tools" / "bin" / "uv"):
        if found is not None and Path(found).exists():
            return Path(found)
    if os.environ.get("CI") == "true":
        pytest.fail("there is no uv to make a Python with")
    pytest.skip("there is no uv to make a Python with")


ROOT = Path(__file__).parent.parent.parent
PYPROJECT = """
[project]
name = "motley-client"
version = "0.1.0"
[project.optional-dependencies]
sample = []
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import pathlib, zipfile
TEXTS = {
    "METADATA": "Metadata-Version: 2.1\\nName: motley-client\\nVersion: 0.1.0\\nProvides-Extra: sample\\n",
    "WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}
def build_wheel(folder, *_, **__):
    name, info = "motley_client-0.1.0-py3-none-any.whl", "motley_client-0.1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.write("motley_client/__init__.py")
        for file, text in TEXTS.items():
            wheel.writestr(f"{info}/{file}", text)
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
