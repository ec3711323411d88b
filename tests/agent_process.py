"""An agent of its own process and folder, beside a live service."""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.agent.__main__ import REFUSED
from engines.attempt_files import AttemptFolder
from engines.supervision.processes import kill, marked
from tests.deployment import PATIENCE_S, ROOT, others, told, wait_for
from tests.service.running_service import Service


class AgentProcess:
    """An agent, as its owner starts it."""

    def __init__(self, service: Service, folder: Path, job_user: str, log: Path | None = None) -> None:
        self._service, self.folder, self._user = service, folder, job_user
        self.url = service.url
        self.prefix: tuple[str, ...] = ()
        """Command before its own, as that which enters the network of a server."""
        self.program = ROOT
        """Folder that has its sources."""
        self._log = log or folder.with_suffix(".log")
        self.driver: dict[str, str] = {}
        """Variables with which it finds a driver."""
        self.process: subprocess.Popen[bytes] | None = None

    def install(self, name: str, *more: str, token: str = "") -> "subprocess.CompletedProcess[str]":
        """Make the machine a server of the site, by the line of the page *Add a server*; a new token by default."""
        token = token or self._service.manage("jointoken", name, "--site").stdout.strip()
        places = ["--state", str(self.folder), "--prefix", str(self.folder.with_suffix(".program"))]
        words = shlex.join([*self._jobs_as, *more, *places])
        line = f"curl -fsS {self.url}/agent/install | sh -s -- {words}"
        self.program = self.folder.with_suffix(".program") / "current"
        environment = self._environment | {"MOTLEY_JOIN_TOKEN": token}
        return subprocess.run(
            [*self.prefix, "sh", "-c", line],
            env=environment,
            cwd="/",
            check=False,
            timeout=PATIENCE_S,
            capture_output=True,
            text=True,
        )

    def join(self, name: str, gpus: str = "") -> None:
        """As soon as it may: while jobs of an earlier machine of the name have their lease, it is refused.

        Without emulated GPUs it has those of its driver.
        """
        told_once = self._service.manage("jointoken", name, "--trusted")
        assert told_once.returncode == 0, told_once.stderr
        emulated = ["--gpus", gpus] if gpus else []
        words = ["--url", self.url, *emulated, "--notice", "60s", *self._jobs_as]
        environment = self._environment | {"MOTLEY_JOIN_TOKEN": told_once.stdout.strip()}

        def has_joined() -> bool:
            done = subprocess.run(
                self._command("join", *words), env=environment, cwd=ROOT, check=False, timeout=PATIENCE_S
            )
            assert done.returncode in (0, REFUSED)
            return done.returncode == 0

        wait_for("it joins", has_joined)

    def start(self, *more: str) -> None:
        with self._log.open("ab") as log:
            command = self._command("run", *more)  # the account of jobs is that of `join`
            self.process = subprocess.Popen(command, env=self._environment, cwd=self.program, stdout=log, stderr=log)

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash of the agent: its jobs and their supervisors live on."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(30)

    def die(self) -> None:
        """As a power cut of the machine."""
        while left := [*self.supervisors(), *self.jobs()]:
            kill(left)
        assert self.process is not None
        self.process.wait(30)

    def exit_status(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def clear_away(self) -> None:
        if self.process is not None:
            self.die()
        self._log.unlink(missing_ok=True)
        shutil.rmtree(self.folder.with_suffix(".program"), ignore_errors=True)

    def supervisors(self) -> list[int]:
        return [pid for pid in others() if str(self.folder).encode() in told(pid, "cmdline")]

    def log(self) -> str:
        return self._log.read_text()

    def last_words(self) -> str:
        """Last line of its log."""
        return (self.log().splitlines() or [""])[-1]

    def let_go(self, job: str) -> None:
        (self._folder_of(job) / "checkpoints" / "go").touch()

    def has_folder_of(self, job: str) -> bool:
        return self._folder_of(job).exists()

    def jobs(self) -> list[int]:
        folders = [AttemptFolder(path) for path in (self.folder / "engine" / "attempts").glob("*")]
        launches = [launch for folder in folders if (launch := folder.read_launch()) is not None]
        return [pid for launch in launches for pid in marked(launch["mark"])]

    def _folder_of(self, job: str) -> Path:
        return self.folder / "engine" / "jobs" / job

    @property
    def _jobs_as(self) -> list[str]:
        return ["--job-user", self._user] if os.geteuid() == 0 else []

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.driver}

    def _command(self, *words: str) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "engines.agent", *words, "--state", str(self.folder)]


@contextmanager
def an_agent(
    service: Service, job_user: str, folder: Path | None = None, log: Path | None = None
) -> Iterator[AgentProcess]:
    folder = folder or Path(f"/tmp/motley-agent-{secrets.token_hex(4)}")
    one = AgentProcess(service, folder, job_user, log)
    try:
        yield one
    finally:
        one.clear_away()
        shutil.rmtree(folder, ignore_errors=True)
