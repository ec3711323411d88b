"""The units of deploy/systemd, and the full stack started by their commands."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import ROOT
from tests.private_servers import private_folder
from tests.stack.composed import Member, Stack

UNITS = ROOT / "deploy" / "systemd"
SETTINGS = ROOT / "deploy" / "motley.env.example"
PROGRAMS = "/opt/motley/.venv/bin/"
ANALYZE = shutil.which("systemd-analyze")
SERVICES = ("web", "worker", "rounds", "beat")


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with its values; its sections share no name."""
    text = (UNITS / name).read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def faults_in(*files: Path) -> str:
    """What systemd's own check says of these units; empty: nothing is wrong with them."""
    if ANALYZE is None:
        pytest.skip("systemd-analyze is not installed")
    words = [ANALYZE, "--man=no", "verify", *map(str, files)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    of_ours = [line for line in done.stdout.splitlines() if any(file.name in line for file in files)]
    return "\n".join(of_ours) or ("" if done.returncode == 0 else f"exit status {done.returncode}: {done.stdout}")


def command_of(service: str) -> list[str]:
    """The words of `ExecStart`, the programs by name as docker-compose.yml has them; systemd reads %% as %."""
    (line,) = unit(f"motley-{service}.service")["ExecStart"]
    return [word.removeprefix(PROGRAMS).replace("%%", "%") for word in shlex.split(line)]


def settings() -> dict[str, str]:
    """The variables of the example of /etc/motley/motley.env."""
    return dict(re.findall(r"^(\w+)=(.*)$", SETTINGS.read_text(), re.MULTILINE))


class Site(Stack):
    """Web, workers and beat as their units start them; PostgreSQL and Redis as in the full stack.

    As the page says it begins with an empty database.
    """

    apart = frozenset()
    migrated = False

    def _member(self, name: str, spec: dict[str, Any], folder: Path) -> Member:
        if name in (*SERVICES, "migrate"):
            spec = self._as_installed(name, spec)
        return super()._member(name, spec, folder)

    def _as_installed(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The spec with the unit's command and the settings of the example, filled in as the page says."""
        filled = {key: value.replace("/opt/motley", "/motley") for key, value in settings().items()}
        for key, password in (("DATABASE", "POSTGRES"), ("REDIS", "REDIS"), ("CACHE_URL", "REDIS")):
            text = filled[f"MOTLEY_{key}"].replace("PASSWORD", self.given[f"{password}_PASSWORD"])
            filled[f"MOTLEY_{key}"] = text.replace("@localhost:", "@127.0.0.1:")
        filled["MOTLEY_HOSTS"] = filled["MOTLEY_HOSTS"].replace("motley.example.org", self.given["MOTLEY_HOSTS"])
        for key in ("MOTLEY_SECRET_KEY", "MOTLEY_URL", "MOTLEY_TLS"):
            filled[key] = self.given[key]
        installed = {**spec, "environment": filled, "volumes": ["state:/var/lib/motley"]}
        if name != "migrate":
            installed["command"] = [*command_of(name), *(["--bind", "127.0.0.1:8000"] if name == "web" else [])]
        if name in ("worker", "rounds", "beat"):
            del installed["healthcheck"]  # systemd restarts what ends, and asks for no sign of life
        return installed

    @property
    def engine_root(self) -> Path:
        return self.folder / "volumes" / "state" / "engine"


@contextmanager
def a_site() -> Iterator[Site]:
    """All services, started; afterwards nothing of them is left."""
    with private_folder("motley-site-") as folder:
        folder.chmod(0o711)
        site = Site(folder)
        try:
            site.up()
            yield site
        finally:
            site.down()
            site.clear_away()
