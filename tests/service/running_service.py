"""A whole Motley for a test: its own folder, port and processes, started as a user starts it."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx

from motley_client.client import Client

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
T = TypeVar("T")


def wait_for(what: str, question: Callable[[], T], *, patience_s: float = PATIENCE_S) -> T:
    """Ask until the answer is true; the time is a limit for a loaded machine, nothing depends on it."""
    until = time.monotonic() + patience_s
    while not (answer := question()):
        assert time.monotonic() < until, f"waited {patience_s} s in vain: {what}"
        time.sleep(0.1)
    return answer


class Service:
    """`make run` without make: the same command in an environment of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.var = folder / "var"
        self.port = _free_port()
        self.mark = secrets.token_hex(8)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MOTLEY_VAR": str(self.var),
            "MOTLEY_PORT": str(self.port),
            "MOTLEY_TEST_MARK": self.mark,
            "DEMO": "0",
            **environment,
        }
        self.log = folder / "service.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-u", str(ROOT / "manage.py"), "serve"]
            self.process = subprocess.Popen(command, env=self.environment, cwd=ROOT, stdout=log, stderr=log)
        wait_for("the service answers", self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/api/v1/jobs").status_code == 401
        return False

    def stop(self) -> None:
        """As Ctrl-C."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def kill(self) -> None:
        """As a power cut for everything but the jobs and their supervisors."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        wait_for("the service's other processes end with it", lambda: not self.service_processes())

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def login(self) -> dict[str, str]:
        lines = (self.var / "demo.env").read_text().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    @cached_property
    def client(self) -> Client:
        return Client(self.url, self.login["MOTLEY_TOKEN"])

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "manage.py"), *words]
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )

    def python(self, code: str) -> Any:
        """Run code beside the service, on its database; what it assigns to `answer` comes back through JSON."""
        done = self.manage(
            "shell", "--no-imports", "-c", f"answer = None\n{code}\nimport json; print(json.dumps(answer))"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def declare(self, *, round_s: float = 1, min_run_s: float = 0, **gpus: int) -> None:
        """An emulated node for each GPU type: declare(a100=4, v100=2)."""
        self.python(
            "from cluster_app.models import GpuType\n"
            "from cluster_app.services import add_node\n"
            "from scheduler_app.demo import SPECIFICATIONS\n"
            "from scheduler_app.models import PolicySetting\n"
            "from scheduler_app.services import choose_policy\n"
            f"for name, gpus in {gpus!r}.items():\n"
            "    kind = GpuType.objects.create(name=name, **SPECIFICATIONS[name])\n"
            "    add_node(f'node-{name}', kind, gpus=gpus, cpus=64, memory_mib=2**19, emulated=True)\n"
            f"choose_policy(PolicySetting(round_length_s={round_s}, min_run_s={min_run_s}), actor=None)\n"
        )

    def submit(self, command: str | list[str], **spec: Any) -> str:
        return self.client.submit({"name": "test", "team": "vision", "gpus": 1, "command": command, **spec})["id"]

    def sample(self, *, steps: int, rate: float, **spec: Any) -> str:
        """The sample training, which notes each step that it does in trace.txt of its working folder."""
        command = ["python", "-m", "motley_client.sample", "--steps", str(steps), "--trace", "trace.txt"]
        return self.submit(command, rates={"a100": rate}, total_steps=steps, **spec)

    def wait_for_state(self, job: str, *states: str) -> Any:
        return wait_for(f"job {job} is {states}", lambda: (j := self.client.job(job))["state"] in states and j)

    def trace(self, job: str) -> list[int]:
        path = self.engine_root / "jobs" / job / "work" / "trace.txt"
        return [int(line) for line in path.read_text().split()]

    @property
    def engine_root(self) -> Path:
        return self.var / "engine"

    def service_processes(self) -> list[int]:
        """What `serve` started, itself included; supervisors and jobs are none of them."""
        return [pid for pid in self._marked() if b"engines." not in _command_line(pid)]

    def processes(self, name: str) -> list[int]:
        return [pid for pid in self._marked() if name.encode() in _command_line(pid)]

    def _marked(self) -> Iterator[int]:
        mark = f"MOTLEY_TEST_MARK={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        yield int(entry.name)

    def job_processes(self) -> list[int]:
        """Supervisors and whatever jobs left, found by this engine's folder."""
        root, others = str(self.engine_root).encode(), {os.getpid(), *self.service_processes()}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in others:
                with suppress(OSError):
                    if root in (entry / "cmdline").read_bytes() or root in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found


@contextmanager
def a_service(**environment: str) -> Iterator[Service]:
    """A started service; afterwards nothing of it is left."""
    folder = Path(f"/tmp/motley-test-{secrets.token_hex(4)}")
    folder.mkdir()
    folder.chmod(0o711)  # jobs of another user pass through
    service = Service(folder, **environment)
    try:
        service.start()
        yield service
    finally:
        service.client.close()
        service.stop()
        for pid in service.job_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    return b""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
