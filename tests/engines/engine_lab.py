"""An engine with a folder of its own, and the words in which the tests of every engine are written."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from engines.attempt_files import AttemptFolder
from engines.local.engine import LocalEngine
from engines.protocol import AttemptReport, Engine, Launch, NodeLaunch, Phase, Stream
from engines.slurm.engine import SlurmEngine
from engines.slurm.options import SlurmOptions
from engines.supervision.isolation import Isolation
from engines.supervision.processes import kill, marked
from operations.private_slurm import PrivateCluster

Found = TypeVar("Found")
GIVE_UP_AFTER_S = 120.0
TO_COME = (Phase.LAUNCHING, Phase.RUNNING)


def until(look: Callable[[], Found | None], *, seconds: float = GIVE_UP_AFTER_S) -> Found:
    """What `look` finds, as soon as that is something."""
    give_up_at = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up_at, "what was waited for did not come"
        time.sleep(0.01)
    return found


def python(script: str) -> list[str]:
    return [sys.executable, "-ESc", script]


class Lab:
    """A local engine; `SlurmLab` is the same over Slurm."""

    supervisor_module = "engines.supervision.supervisor"

    def __init__(self, root: Path, *, isolation: Isolation | None = None, job_user: str | None = None) -> None:
        self.root = root
        self.isolation = isolation
        self.job_user = job_user
        self.engine: Any = self.another_engine()
        self._numbers = count(1)

    def another_engine(self) -> Engine:
        return LocalEngine(self.root, declared=["n1", "n2"], isolation=self.isolation, job_user=self.job_user)

    def stop_all(self) -> None:
        """Kill what is left, and wait until nothing is."""
        kill(self.supervisors())
        until(lambda: not self.left_over() and not self.supervisors())

    def supervisors(self) -> list[int]:
        folders = (self.root / "attempts").iterdir()
        return [pid for folder in folders for pid in running(self.supervisor_module, str(folder))]

    def order(self, command: str | Sequence[str], *, ranks: int = 1, **changes: Any) -> Launch:
        tasks = [NodeLaunch(f"n{rank + 1}", {"RANK_HERE": str(rank)}) for rank in range(ranks)]
        launch = Launch(next(self._numbers), job=str(uuid4()), command=command, tasks=tasks)
        return replace(launch, **changes)

    def launch(self, command: str | Sequence[str], **changes: Any) -> int:
        launch = self.order(command, **changes)
        self.engine.launch(launch)
        return launch.attempt

    def run(self, command: str | Sequence[str], **changes: Any) -> int:
        """The attempt, once it has ended."""
        attempt = self.launch(command, **changes)
        self.end_of(attempt)
        return attempt

    def report(self, attempt: int) -> AttemptReport:
        return self.engine.poll([attempt])[0]

    def end_of(self, attempt: int) -> AttemptReport:
        return until(lambda: self._report_in(attempt, Phase.ENDED))

    def loss_of(self, attempt: int) -> AttemptReport:
        return until(
            lambda: report if (report := self._report_in(attempt, Phase.LOST)) and report.proven_gone else None
        )

    def output(self, attempt: int, stream: Stream = Stream.STDOUT, rank: int = 0) -> bytes:
        return self.engine.logs(attempt, stream, rank, 0, 10_000_000).data

    def wait_for_output(self, attempt: int, text: bytes, rank: int = 0) -> None:
        until(lambda: text in self.output(attempt, rank=rank))

    def env_of(self, attempt: int) -> Mapping[str, str]:
        """What a job that ran `env` has printed."""
        return dict(line.split("=", 1) for line in self.output(attempt).decode().splitlines())

    def processes(self, attempt: int) -> list[int]:
        launch = self.folder(attempt).read_launch()
        return marked(launch["mark"]) if launch is not None else []

    def supervisor(self, attempt: int) -> int:
        (pid,) = until(lambda: running(self.supervisor_module, str(self.folder(attempt).path)))
        return pid

    def folder(self, attempt: int) -> AttemptFolder:
        return AttemptFolder(self.root / "attempts" / str(attempt))

    def left_over(self) -> list[int]:
        attempts = [int(path.name) for path in (self.root / "attempts").iterdir()]
        return [pid for attempt in attempts for pid in self.processes(attempt)]

    def _report_in(self, attempt: int, phase: Phase) -> AttemptReport | None:
        report = self.report(attempt)
        assert report.phase in {phase, *TO_COME}, f"{report}\n{self.folder(attempt).supervisor_log.read_text()}"
        return report if report.phase is phase else None


def running(*words: str) -> list[int]:
    """Processes with these words on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if set(words) <= set(line):
                found.append(int(entry.name))
    return found


class SlurmLab(Lab):
    """An engine over a private Slurm cluster with the nodes n1 and n2 of 4 "a100" each, and n3 of 4 "v100"."""

    supervisor_module = "engines.slurm.batch"

    def __init__(self, root: Path, cluster: PrivateCluster, **options: Any) -> None:
        self.cluster = cluster
        self.options = SlurmOptions(
            root, slurm_conf=cluster.conf, python=Path(sys.executable), **{"late_disk_s": 3, **options}
        )
        super().__init__(root)

    def another_engine(self) -> SlurmEngine:
        return SlurmEngine(self.options, job_user=self.job_user)

    def stop_all(self) -> None:
        mine = [job for job in self.slurm_jobs() if job[1] != "COMPLETING"]
        if mine:
            self.cluster.run("scancel", "--full", "--signal=KILL", *(number for number, _ in mine))
            self.cluster.run("scancel", *(number for number, _ in mine))
        until(lambda: not self.left_over() and not self.slurm_jobs())

    def _report_in(self, attempt: int, phase: Phase) -> AttemptReport | None:
        """As of every engine; the end counts once Slurm is done with the nodes, too."""
        time.sleep(0.03)  # a look is a command of Slurm
        report = super()._report_in(attempt, phase)
        return None if report is not None and phase is Phase.ENDED and not report.proven_gone else report

    def slurm_jobs(self) -> list[tuple[str, str]]:
        """Number and state of the jobs that Slurm has not ended."""
        lines = self.cluster.run("squeue", "-h", "-o", "%A %T").splitlines()
        return [(number, state) for number, _, state in (line.partition(" ") for line in lines)]
