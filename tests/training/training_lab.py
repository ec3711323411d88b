"""A job that trains by one of the client's examples, launched as the service would launch it."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pytest
from django.conf import settings

from engines.protocol import AttemptReport, Phase, Progress, StopReason, Stream
from scheduler_app.round.job_environment import LaunchGpu, LaunchSpec, launch_of
from tests.engines.engine_lab import Lab, until
from tests.private_servers import free_ports

CLIENT = Path(settings.BASE_DIR) / "client"
EXAMPLES = CLIENT / "examples"
PATIENCE_S = 300.0
"""For the start of a gang whose every process imports PyTorch, on a busy machine."""
LINE = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)
NUMBER_OF_TORCH = "import torch; print(torch.__version__)"
NEVER = 10**7
"""Steps that no test waits for."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(CLIENT), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}


@dataclass(frozen=True)
class Gang:
    """Nodes, with the GPUs on each."""

    gpu_type: str
    nodes: Sequence[tuple[str, int]]

    @property
    def gpus(self) -> list[LaunchGpu]:
        return [LaunchGpu(node, index, "", emulated=True) for node, count in self.nodes for index in range(count)]


class Training:
    """Attempts of one job."""

    def __init__(self, lab: Lab, python: Path) -> None:
        self.lab = lab
        self.python = python
        self.job = str(uuid4())
        self.attempts: list[int] = []

    @property
    def checkpoints(self) -> Path:
        return self.lab.root / "jobs" / self.job / "checkpoints"

    def start(self, launcher: Sequence[str], script: str, *options: str, on: Gang) -> int:
        attempt = self.lab.order("").attempt
        self.attempts.append(attempt)
        spec = LaunchSpec(
            attempt=attempt,
            number=len(self.attempts),
            job=self.job,
            name="train",
            team="vision",
            account="",
            command=[*launcher, str(EXAMPLES / script), *options],
            env=ONE_THREAD,
            mounts={},
            gpu_type=on.gpu_type,
            gpus=on.gpus,
            gpus_per_replica=1,
            cpus_per_gpu=0,
            memory_per_gpu_mib=0,
            shares_cpus=False,
            master_port=free_ports(1),
            rate=100,
            batch_size=0,
            micro_batches=1,
            batch_choices=[],
            resume=len(self.attempts) > 1,
            grace_s=60,
            time_limit_s=None,
            array_index=None,
            api_url="",
            job_token="",
        )
        self.lab.engine.launch(launch_of(spec, workdir="", log_limit_bytes=2**26))
        return attempt

    def until_step(self, attempt: int, step: int) -> Progress:
        """Its progress, once it has done the step."""

        def reached() -> Progress | None:
            report = self._alive(attempt)
            return report.progress if report.progress and report.progress.step >= step else None

        return until(reached, seconds=PATIENCE_S)

    def preempt(self, attempt: int) -> AttemptReport:
        self.lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=timedelta(seconds=60))
        return self.end_of(attempt)

    def terminate_rank(self, attempt: int, rank: int) -> None:
        """Send SIGTERM to one process of PyTorch alone."""
        of_rank = f"RANK={rank}".encode()
        for pid in self.lab.processes(attempt):
            if of_rank in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGTERM)

    def ended_by_itself(self, attempt: int) -> AttemptReport:
        return until(lambda: _ended(self.lab.report(attempt)), seconds=PATIENCE_S)

    def end_of(self, attempt: int) -> AttemptReport:
        return until(lambda: _ended(self._alive(attempt)), seconds=PATIENCE_S)

    def succeeded(self, attempt: int) -> None:
        assert self.end_of(attempt).exit_code == 0, self.text(attempt, Stream.STDERR)[-3000:]

    def losses(self, attempt: int) -> list[tuple[int, float]]:
        """Steps and their losses, in the order in which rank 0 printed them."""
        return losses_in(self.text(attempt))

    def text(self, attempt: int, stream: Stream = Stream.STDOUT, rank: int = 0) -> str:
        return self.lab.output(attempt, stream, rank).decode()

    def _alive(self, attempt: int) -> AttemptReport:
        report = self.lab.report(attempt)
        over = report.phase in {Phase.LOST, Phase.ENDED} and not self.lab.folder(attempt).stop.exists()
        assert not (over and report.exit_code), self.text(attempt, Stream.STDERR)[-3000:]
        return report


def _ended(report: AttemptReport) -> AttemptReport | None:
    return report if report.phase is Phase.ENDED and report.proven_gone else None


def torchrun(python: Path) -> list[str]:
    version = subprocess.run([python, "-c", NUMBER_OF_TORCH], check=True, capture_output=True, text=True)
    if version.stdout < "2":
        pytest.skip("torchrun of Debian's PyTorch 1.13 does not run on Python 3.11")
    return [str(python), "-m", "torch.distributed.run"]


def losses_in(text: str) -> list[tuple[int, float]]:
    return [(int(step), float(loss)) for step, loss in LINE.findall(text)]


def one_process(
    python: Path, script: str, *options: str, folder: Path, env: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[int, float]]:
    """Losses of the same training by a single process outside Motley, but for what `env` says."""
    port = str(free_ports(1))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "MASTER_PORT": port, **ONE_THREAD, **env}
    done = subprocess.run(
        [str(python), str(EXAMPLES / script), *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return losses_in(done.stdout)


def assert_same(found: list[tuple[int, float]], reference: list[tuple[int, float]], *, within: float = 1e-9) -> None:
    """No step is left out or repeated, and the losses agree up to the order in which ranks are summed."""
    assert [step for step, _ in found] == [step for step, _ in reference]
    apart = [(step, loss, other) for (step, loss), (_, other) in zip(found, reference, strict=True)]
    assert [one for one in apart if abs(one[1] - one[2]) > within] == []
