"""A local engine with a folder of its own, and the words in which its tests are written."""

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
from engines.local.isolation import Isolation
from engines.local.processes import kill, marked
from engines.protocol import AttemptReport, Launch, NodeLaunch, Phase, Stream

Found = TypeVar("Found")
GIVE_UP_AFTER_S = 30.0
TO_COME = (Phase.LAUNCHING, Phase.RUNNING)


def until(look: Callable[[], Found | None]) -> Found:
    """What `look` finds, as soon as that is something."""
    give_up_at = time.monotonic() + GIVE_UP_AFTER_S
    while not (found := look()):
        assert time.monotonic() < give_up_at, "what was waited for did not come"
        time.sleep(0.01)
    return found


def python(script: str) -> list[str]:
    return [sys.executable, "-ESc", script]


class Lab:
    def __init__(self, root: Path, *, isolation: Isolation | None = None, job_user: str | None = None) -> None:
        self.root = root
        self.isolation = isolation
        self.job_user = job_user
        self.engine = self.another_engine()
        self._numbers = count(1)

    def another_engine(self) -> LocalEngine:
        return LocalEngine(self.root, declared=["n1", "n2"], isolation=self.isolation, job_user=self.job_user)

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
        (pid,) = until(lambda: running("engines.local.supervisor", str(self.folder(attempt).path)))
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


def stop_all(lab: Lab) -> None:
    kill(supervisors_below(lab.root))
    until(lambda: not lab.left_over() and not supervisors_below(lab.root))


def supervisors_below(root: Path) -> list[int]:
    return [pid for folder in (root / "attempts").iterdir() for pid in running("engines.local.supervisor", str(folder))]
