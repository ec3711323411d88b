"""The container runtime of this machine: Podman, or else Apptainer, if jobs can be started by it."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engines.attempt_files import AttemptFolder, ContainerFile, RankCommand
from engines.protocol import EngineError, Image
from engines.supervision.container import APPTAINER, OWN_ENVIRONMENT, PODMAN
from engines.supervision.isolation import Isolation

INITS = ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit", "/usr/libexec/catatonit/catatonit")
PATIENCE_S = 30


class ContainerRuntime(NamedTuple):
    """A runtime with its version; without a name there is none, and `why_not` says why."""

    name: str = ""
    version: str = ""
    why_not: str = ""
    driver: str = ""
    store: str = ""
    init: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def contained(
        self, rank: RankCommand, number: int, image: Image, folder: AttemptFolder, folders: Sequence[Path]
    ) -> RankCommand:
        """The command of a rank in a container, in which these folders have the same paths."""
        if not self.name:
            raise EngineError(f"This machine runs no containers: {self.why_not}.")
        setup = [rank["setup"]["folder"]] if rank["setup"] is not None else []
        container = ContainerFile(
            runtime=self.name,
            image=image.name,
            fetch=image.fetch,
            folder=str(folder.path / f"container.{number}"),
            folders=[*map(str, folders), *setup],
            read_only=[str(folder.path)],
            driver=self.driver,
            store=self.store,
            init=self.init,
        )
        return RankCommand(**{**rank, "container": container})


def find_runtime(setting: str, isolation: str) -> ContainerRuntime:
    """The runtime of that name, or for `auto` the first that works."""
    found = [find(isolation) for name, find in RUNTIMES.items() if setting in ("auto", name)]
    none = ContainerRuntime(why_not="; ".join(one.why_not for one in found) or "MOTLEY_CONTAINERS is none")
    return next((one for one in found if one.name), none)


def _podman(isolation: str) -> ContainerRuntime:
    if os.geteuid() != 0 or isolation != Isolation.NAMESPACE:
        return ContainerRuntime(why_not="Podman is used where the service is root and may make PID namespaces")
    init = next((path for path in INITS if Path(path).exists()), "")
    programs = [(PODMAN, PODMAN), ("crun", "crun"), ("catatonit", init)]
    if missing := [name for name, program in programs if not _is_installed(program)]:
        return ContainerRuntime(why_not=f"not installed: {', '.join(missing)}")
    try:
        info = json.loads(_said(PODMAN, "info", "--format=json"))
        store = info["store"]
        return ContainerRuntime(
            PODMAN, info["version"]["Version"], "", store["graphDriverName"], store["graphRoot"], init
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return ContainerRuntime(why_not=f"podman info failed: {error}")


def _apptainer(_: str) -> ContainerRuntime:
    if not _is_installed(APPTAINER):
        return ContainerRuntime(why_not=f"not installed: {APPTAINER}")
    try:
        return ContainerRuntime(APPTAINER, _said(APPTAINER, "--version").split()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        return ContainerRuntime(why_not=f"apptainer --version failed: {error}")


RUNTIMES = {PODMAN: _podman, APPTAINER: _apptainer}


def _is_installed(program: str) -> bool:
    return bool(program) and shutil.which(program, path=OWN_ENVIRONMENT["PATH"]) is not None


def _said(*command: str) -> str:
    env = OWN_ENVIRONMENT | {"HOME": "/root"}
    return subprocess.run(  # noqa: S603 - our own words
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=True, env=env, text=True
    ).stdout
