"""A whole Motley that runs beside the test, and what a test says to it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from motley_client import Client

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 600
T = TypeVar("T")

HELD_BY_TWO = """
select count(*) from (
    select held_from, lag(true) over gpus as is_next, lag(released_at) over gpus as free_from
    from jobs_app_gpuclaim where held_from is not null window gpus as (partition by gpu_id order by held_from)
) as claims where is_next and (free_from is null or free_from > held_from)
"""
SHARES = "max_min_fairness"
"""The policy unless another is named: equal jobs take turns, so that jobs are preempted soon."""
CHOOSE_ROUNDS = """
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy
choose_policy(PolicySetting(policy={policy!r}, round_length_s={round_s}, min_run_s={min_run_s}), actor=None)
"""


def wait_for(
    what: str,
    question: Callable[[], T | Literal[False] | None],
    *,
    patience_s: float = PATIENCE_S,
    pause_s: float = 0.1,
) -> T:
    """Ask until the answer is true; the time is a limit for a loaded machine, nothing depends on it."""
    until = time.monotonic() + patience_s
    while not (answer := question()):
        assert time.monotonic() < until, f"waited {patience_s} s in vain: {what}"
        time.sleep(pause_s)
    return answer


class Deployment:
    """Words for tests; where it runs, and how, is for its kinds to say."""

    engine_root: Path
    environment: Mapping[str, str]
    mark: str
    """In the environment of every process of the service, as MOTLEY_TEST_MARK."""
    url: str
    sources: Path = ROOT
    """Of its programs."""

    @property
    def token(self) -> str:
        raise NotImplementedError

    @cached_property
    def client(self) -> Client:
        return Client(self.url, self.token)

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.sources / "manage.py"), *words]
        return subprocess.run(
            command, env=self.environment, cwd=self.sources, capture_output=True, text=True, check=False, timeout=120
        )

    def python(self, code: str) -> Any:
        """Run code beside the service, on its database; what it assigns to `answer` comes back through JSON."""
        done = self.manage(
            "shell", "--no-imports", "-c", f"answer = None\n{code}\nimport json; print(json.dumps(answer))"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement on its database: a process of Django for it takes as long as a test."""
        raise NotImplementedError

    def overlaps(self) -> int:
        """How often a GPU was held by two at once."""
        ((found,),) = self.sql(HELD_BY_TWO)
        return int(found)

    def declare(self, *, round_s: float = 1, min_run_s: float = 0, policy: str = SHARES, **gpus: int) -> None:
        """An emulated node for each GPU type: declare(a100=4, v100=2)."""
        self.python(
            "from cluster_app.models import GpuType\n"
            "from cluster_app.services import add_node\n"
            "from connections_app.register_machine import gpu_type_columns\n"
            f"for name, gpus in {gpus!r}.items():\n"
            "    kind = GpuType.objects.create(name=name, **gpu_type_columns(name))\n"
            "    add_node(f'node-{name}', kind, gpus=gpus, cpus=64, memory_mib=2**19, emulated=True)\n"
            + CHOOSE_ROUNDS.format(policy=policy, round_s=round_s, min_run_s=min_run_s)
        )

    def decide_every(self, round_s: float, *, min_run_s: float = 0, policy: str = SHARES) -> None:
        self.python(CHOOSE_ROUNDS.format(policy=policy, round_s=round_s, min_run_s=min_run_s))

    def submit(self, command: str | list[str], *, idempotency_key: str | None = None, **spec: Any) -> str:
        """A restart costs nothing unless given, so that jobs have no lease."""
        checkpoint = {"restore_seconds": 0, **spec.pop("checkpoint", {})}
        given = {"name": "test", "team": "vision", "gpus": 1, "command": command, "checkpoint": checkpoint, **spec}
        return self.client.submit(given, idempotency_key=idempotency_key)["id"]

    def sample(self, *, steps: int, rate: float, **spec: Any) -> str:
        """The sample training, which notes each step that it does in trace.txt of its working folder."""
        command = ["python", "-m", "motley_client.sample", "--steps", str(steps), "--trace", "trace.txt"]
        return self.submit(command, rates={"a100": rate}, total_steps=steps, **spec)

    def wait_for_state(self, job: str, *states: str) -> Any:
        return wait_for(
            f"job {job} is {states}", lambda: (j := self.client.job(job))["state"] in states and j, pause_s=0.25
        )

    def let_go(self, job: str) -> None:
        """Tell a job that waits for the file `go` among its checkpoints, now or once it is launched, to continue."""
        checkpoints = self.engine_root / "jobs" / job / "checkpoints"
        wait_for(f"job {job} has its folder", checkpoints.is_dir)
        (checkpoints / "go").touch()

    def trace(self, job: str) -> list[int]:
        path = self.engine_root / "jobs" / job / "work" / "trace.txt"
        return [int(line) for line in path.read_text().split()]

    def service_processes(self) -> list[int]:
        """The service's own; supervisors and jobs are none of them."""
        return [pid for pid in self._marked() if b"engines." not in told(pid, "cmdline")]

    def processes(self, *names: str) -> list[int]:
        """Those of its own with one of these names: motley-engines."""
        wanted = {f"{name}\n".encode() for name in names}
        return [pid for pid in self._marked() if told(pid, "comm") in wanted]

    def schedulers(self) -> list[int]:
        return self.processes("motley-engines", "motley-rounds")

    def job_processes(self) -> list[int]:
        """Supervisors and whatever jobs left, found by this engine's folder."""
        root, ours = str(self.engine_root).encode(), self.service_processes()
        found = [pid for pid in others() if root in told(pid, "cmdline") + told(pid, "environ")]
        return sorted({*found} - {*ours})

    def _marked(self) -> Iterator[int]:
        mark = f"MOTLEY_TEST_MARK={self.mark}".encode()
        return (pid for pid in others() if mark in told(pid, "environ"))

    def clear_away(self) -> None:
        """After the service itself has stopped."""
        if "client" in vars(self):
            self.client.close()
        self.end_jobs()

    def end_jobs(self) -> None:
        """Nothing of them is left, whatever they were doing."""
        while left := self.job_processes():
            kill_all(left)
            time.sleep(0.01)


def others() -> Iterator[int]:
    """All processes but this one."""
    return (
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != str(os.getpid())
    )


def told(pid: int, what: str) -> bytes:
    """A process's command line (cmdline), environment (environ) or name (comm); empty once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes().replace(b"\0", b" ")
    return b""


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a child that was about to become another program
            os.kill(pid, signal.SIGKILL)
